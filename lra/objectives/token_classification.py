"""Classification of single tokens: cross entropy and accuracy."""

import numpy as np

from lra.core.errors import UserError
from lra.data import batches
from lra.nn import heads
from lra.objectives import classification


class Objective(classification.Objective):
  """Predicts a class for each token with a label.

  Batches hold tokens int16 [B, L], labels int32 [B, L] and weights float32
  [B, L], 0 at tokens without a label. All labelled tokens count equally.
  """
  of_tokens = ('tokens', 'labels', 'weights')

  def check(self, encoder):
    if not self.task.probe:
      raise UserError(
          f'config.objective=token_classification: {self.task.name} needs one '
          'class for each sequence; choose classification.')
    if encoder.prepend_cls:
      raise UserError(
          f'{self.task.name} predicts a class for single tokens, so '
          'config.encoder.pooling=cls is not possible: choose mean.')

  def model(self, encoder, dtype):
    head = heads.TokenDecoder if self.task.compressed else heads.TokenClassifier
    return head(encoder=encoder, num_classes=self.task.num_classes)

  def label_entropy(self, train):
    some = np.arange(min(len(train), 1000))
    made = self.batch(train, some, seed=0, step=0)
    return classification.entropy(made['labels'][made['weights'] > 0])

  def batch(self, split, indices, *, seed, step):
    both = batches.gather(split, indices, self.seq_len)['tokens']
    # Ids are codes plus one: code 0 means no label, c + 1 means class c.
    asked = both[:, 1].astype(np.int32) - 1
    return {'tokens': both[:, 0], 'labels': np.maximum(asked - 1, 0),
            'weights': (asked > 0).astype(np.float32)}

  def analysis(self, counts, order, train, test):
    return {}  # tokens of one sequence are not independent

  def shapes(self, *lead):
    tokens = (*lead, *((2,) if self.task.dual else ()), self.seq_len)
    return {'tokens': (tokens, np.dtype(np.int16)),
            'labels': (tokens, np.dtype(np.int32)),
            'weights': (tokens, np.dtype(np.float32))}
