"""Masked modelling: predicts hidden tokens of a task's own inputs.

This is the self-pretraining of Amos, Berant and Gupta, ICLR 2024,
arXiv 2310.02980. There a hidden token has an embedding of its own, and the
pixels of Image are predicted as numbers with an L1 loss. Here a hidden token
has the embedding 0, which needs no parameter, and pixels are classes. Each
sequence hides at least one token, so that no batch is without a loss.
"""

import numpy as np

from lra.core.errors import UserError
from lra.nn import heads
from lra.objectives import token_classification

# Share of hidden tokens for each kind of data, as in the paper.
HIDDEN = {'listops': 0.1, 'text': 0.15, 'retrieval': 0.15}
_PIXELS = 0.5


class Objective(token_classification.Objective):
  """Predicts each hidden token from all others.

  Batches hold tokens int16 [B, L] (pairs: [B, 2, L]), where a hidden token has
  the id -1, and labels int32 and weights float32 of the same shape. Labels are
  codes; weights are 1 at hidden tokens. A validation always hides the same
  tokens.
  """
  supervised = False

  @property
  def num_classes(self):
    return self.task.vocab_size - 1  # id 0 is padding

  def check(self, encoder):
    if self.task.probe:
      raise UserError(
          f'config.objective={self.config.objective}: the inputs of '
          f'{self.task.name} are random, so there is nothing to learn from '
          'them; choose a task that is no probe.')

  def model(self, encoder, dtype):
    return heads.TokenClassifier(
        encoder=encoder.clone(hides=True), num_classes=self.num_classes)

  def batch(self, split, indices, *, seed, step):
    tokens = self._examples(split, indices, seed, step)['tokens']
    score = np.where(
        tokens > 0, self._drawn(indices, tokens.shape[1:], seed, step), 1)
    share = HIDDEN.get('text' if self.task.own and not self.task.image else (
        self.task.dataset), _PIXELS)
    hidden = score < np.maximum(
        share, np.nextafter(score.min(axis=-1, keepdims=True), 2))
    hidden &= tokens > 0
    return {'tokens': np.where(hidden, np.int16(-1), tokens),
            'labels': np.maximum(tokens.astype(np.int32) - 1, 0),
            'weights': hidden.astype(np.float32)}

  def _drawn(self, indices, shape, seed, step):
    """Returns float32 [B, *shape] below 1; an example's part is its own."""
    when = (0, 0) if step < 0 else (seed, 1 + step)
    return np.stack([
        np.random.default_rng([*when, int(i)]).random(shape, np.float32)
        for i in indices])

  def count(self, outputs, batch):
    return self.loss(outputs, batch)

  def scores(self, counts):
    return self.metrics({name: float(np.sum([np.float64(c[name])
                                             for c in counts]))
                         for name in ('loss', 'correct', 'weight')})
