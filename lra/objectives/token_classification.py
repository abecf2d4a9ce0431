"""Classification of tokens: cross entropy and accuracy where a class is asked.
"""

import numpy as np

from lra.data import batches
from lra.errors import UserError
from lra.nn import heads
from lra.objectives import classification


class Objective(classification.Objective):
  """A class of each token that is asked for one, read at that token.

  Batches hold tokens int16 [B, L], labels int32 [B, L] and weights float32
  [B, L], 0 where nothing is asked. Every answer counts alike.
  """
  of_tokens = ('tokens', 'labels', 'weights')

  def model(self, encoder, dtype):
    del dtype  # the scores are computed in float32
    if not self.task.probe:
      raise UserError(
          f'config.objective=token_classification: {self.task.name} asks for '
          'one class of each sequence; choose classification.')
    if encoder.prepend_cls:
      raise UserError(
          f'config.encoder.pooling=cls puts a token before the others, and '
          f'{self.task.name} asks for a class of each: choose mean.')
    return heads.TokenClassifier(
        encoder=encoder, num_classes=self.task.num_classes)

  def batch(self, split, indices, *, seed, step):
    del seed, step  # nothing is drawn
    both = batches.gather(split, indices, self.seq_len)['tokens']
    # Ids are codes plus one; the code 0 asks nothing, c + 1 for the class c.
    asked = both[:, 1].astype(np.int32) - 1
    return {'tokens': both[:, 0], 'labels': np.maximum(asked - 1, 0),
            'weights': (asked > 0).astype(np.float32)}

  def analysis(self, counts, order, train, test):
    del counts, order, train, test  # answers of one sequence go together
    return {}

  def shapes(self, *lead):
    tokens = (*lead, self.seq_len)
    return {'tokens': (tokens, np.dtype(np.int16)),
            'labels': (tokens, np.dtype(np.int32)),
            'weights': (tokens, np.dtype(np.float32))}
