"""The direction of a recurrence or a long convolution: one way, or both.

Alternating mixers run one way, from the first token on in the first layer, from
the last in the second, and so on. The encoder turns the tokens for them. So
such a mixer is a causal one that gets the tokens in another order.

Bidirectional mixers run once from the first token on and once from the last.
A pass in reverse has parameters of its own if its paper has them, and papers
differ in how the results of both are joined.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.config import fields
from lra.nn.mixer import check_choices

CHOICES = ('causal', 'bidirectional', 'alternating')


def is_causal(direction: str) -> bool:
  """Returns True if a token sees only itself and those given before it."""
  return direction != 'bidirectional'


def turn(direction: str, layer: int) -> Callable[[jax.Array], jax.Array]:
  """Returns a function that reverses tokens, [B, L, ...], if the layer does.

  Args:
    direction: one of `CHOICES`, or '' of a mixer that has none.
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
    join: 'concat', to [B, L, 2 E], or 'sum'; of a bidirectional run only.
  """
  forward = one_way(False)
  if is_causal(direction):
    return forward
  if join == 'sum':
    return forward + one_way(True)
  return jnp.concatenate([forward, one_way(True)], axis=-1)


def passes(direction: str) -> int:
  """Returns 1 or 2."""
  return 1 if is_causal(direction) else 2


class DirectedMixer(nn.Module):
  """What mixers share that run over the tokens in one direction or in both.

  Attributes:
    direction: `causal`, `bidirectional`, or `alternating`, causal from the
      first token on in the first layer, from the last in the second, and so on.
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
    """True if a position sees only itself and those given before it."""
    return is_causal(self.direction)
