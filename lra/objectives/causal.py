"""Next-token prediction on a task's own inputs, for causal mixers.

This is the causal self-pretraining of Amos, Berant and Gupta, ICLR 2024,
arXiv 2310.02980. As in `masked`, pixels are classes.
"""

import numpy as np

from lra.core.errors import UserError
from lra.nn.mixer import traits_of
from lra.objectives import masked


class Objective(masked.Objective):
  """Predicts each token but the first from those before it.

  Batches hold tokens int16 [B, L] (pairs: [B, 2, L]), and labels int32 and
  weights float32 of the same shape. The label of a position is the code of the
  next token; the weight is 1 if there is one.
  """

  def check(self, encoder):
    super().check(encoder)
    if not traits_of(encoder.mixer()).causal:
      raise UserError(
          f'config.objective=causal: {self.config.model.name} sees later '
          'tokens, so it would copy them; choose masked, or a mixer with '
          'config.model.direction=causal.')

  def batch(self, split, indices, *, seed, step):
    tokens = self._examples(split, indices, seed, step)['tokens']
    following = np.zeros_like(tokens)
    following[..., :-1] = tokens[..., 1:]
    asked = (following > 0) & (tokens > 0)
    return {'tokens': tokens,
            'labels': np.maximum(following.astype(np.int32) - 1, 0),
            'weights': asked.astype(np.float32)}
