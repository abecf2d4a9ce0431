"""The direction of a recurrence or a long convolution: one way, or both.

An alternating mixer runs from the first token on in the first layer, from the
last token on in the second, and so on. The encoder reverses the tokens for it,
so the mixer itself is causal.

Bidirectional mixers run once from the first token on and once from the last.
In some papers the reverse pass has parameters of its own. Papers also differ in
how they join the results of both passes.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn.mixer import check_choices
from lra.schema import fields

CHOICES = ('causal', 'bidirectional', 'alternating')


def is_causal(direction: str) -> bool:
  """Returns whether a token sees only itself and tokens before it."""
  return direction != 'bidirectional'


def turn(direction: str, layer: int) -> Callable[[jax.Array], jax.Array]:
  """Returns a function that reverses tokens [B, L, ...] if the layer needs it.

  Args:
    direction: one of `CHOICES`, or '' for a mixer without a direction.
    layer: index of the layer, from 0.
  """
  if direction == 'alternating' and layer % 2:
    return lambda y: jnp.flip(y, 1)
  return lambda y: y


def run(direction: str, one_way: Callable[[bool], jax.Array],
        join: str) -> jax.Array:
  """Runs one way or both, and joins the results.

  Args:
    direction: one of `CHOICES`.
    one_way: function of `reverse`, whether to begin at the last token. It
      returns [B, L, E].
    join: how to join the results of both ways: 'concat' gives [B, L, 2 E],
      'sum' gives [B, L, E].
  """
  forward = one_way(False)
  if is_causal(direction):
    return forward
  if join == 'sum':
    return forward + one_way(True)
  return jnp.concatenate([forward, one_way(True)], axis=-1)


def passes(direction: str) -> int:
  """Returns the number of passes over the tokens, 1 or 2."""
  return 1 if is_causal(direction) else 2


class DirectedMixer(nn.Module):
  """Base class of mixers that run over tokens in one direction or in both.

  Attributes:
    direction: `causal`, `bidirectional` or `alternating`. An alternating mixer
      is causal; it starts at the first token in even layers (counted from 0)
      and at the last token in odd ones.
    dropout, tie_dropout: those of the encoder, which sets them.
    dtype: dtype of the matmuls.
  """
  direction: str = fields.argument('bidirectional', choices=CHOICES)
  dropout: float = 0.0
  tie_dropout: bool = False
  dtype: jnp.dtype = jnp.float32

  def __post_init__(self):
    super().__post_init__()
    check_choices(self)

  @property
  def causal(self) -> bool:
    """True if a position sees only itself and positions before it."""
    return is_causal(self.direction)
