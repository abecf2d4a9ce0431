"""The direction of a recurrence or a long convolution: one way, or both.

An alternating mixer runs from the first token on in the first layer, from the
last token on in the second, and so on. The encoder reverses the tokens for it,
so the mixer itself is causal. Bidirectional mixers run once from each end.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lra.nn.mixer import BaseMixer
from lra.schema import fields

CHOICES = ('causal', 'bidirectional', 'alternating')


class Directed:
  """Adds the traits that follow from a field `direction` to a mixer."""

  @property
  def causal(self) -> bool:
    return self.direction != 'bidirectional'

  @property
  def passes(self) -> int:
    """Number of passes over the tokens, 1 or 2."""
    return 1 if self.causal else 2

  @property
  def traits(self):
    return super().traits.but(
        causal=self.causal, alternates=self.direction == 'alternating',
        ordered=True)

  def run(self, one_way: Callable[[bool], jax.Array], join: str) -> jax.Array:
    """Runs `one_way(reverse)` one way or both; joins them by concat or sum."""
    forward = one_way(False)
    if self.causal:
      return forward
    if join == 'sum':
      return forward + one_way(True)
    return jnp.concatenate([forward, one_way(True)], axis=-1)


class DirectedMixer(Directed, BaseMixer):
  """A mixer that runs over tokens in one direction or in both."""
  direction: str = fields.argument(
      'bidirectional', '`causal`, `bidirectional` or `alternating`. An '
      'alternating mixer is causal; it starts at the first token in even '
      'layers (counted from 0) and at the last token in odd ones.',
      choices=CHOICES)
  dropout: float = 0.0
  tie_dropout: bool = False
