"""Base class of mixers that keep one matrix per head, [N, E], as their state.

Shapes: B batch, L length, D model width, H heads. N is the width of a head's
queries and keys, E that of its values.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.nn import direction, layers
from lra.schema import fields

EPS = 1e-5  # epsilon of the heads' norms, as in the papers' released code


class MatrixStateMixer(direction.DirectedMixer):
  """A mixer with matrix states; subclasses call their kernel by `both_ways`.

  Attributes: those of `DirectedMixer`, and
    num_heads: H.
    kernel: 'auto' or one of `KERNELS`.
    sums: class attribute, number of columns that values have in addition to E.
  """
  num_heads: int = 8
  kernel: str = 'auto'

  sums = 0

  def widths(self, width: int) -> tuple[int, int]:
    """Returns the total widths of queries and of values for model width D."""
    raise NotImplementedError

  def heads(self, width: int) -> tuple[int, int]:
    """Returns N and E.

    Raises:
      UserError: num_heads does not divide a width.
    """
    for total in self.widths(width):
      if not total or total % self.num_heads:
        raise UserError(
            f'config.model.num_heads={self.num_heads} does not divide a width '
            f'of {total} of queries or values: choose another number of heads, '
            'or widths that it divides.')
    return tuple(total // self.num_heads for total in self.widths(width))

  def state_size(self, width: int) -> int:
    """Returns how many numbers pass from token to token, in all directions."""
    N, E = self.heads(width)
    return self.num_heads * N * (E + self.sums) * direction.passes(
        self.direction)

  def projection(self, ins: int, width: int, name: str,
                 use_bias: bool = False, times: int = 1) -> layers.Projection:
    """Returns a projection [B, L, ins] -> [B, L, times * H, width]."""
    return layers.Projection((ins,), (times * self.num_heads, width),
                             self.dtype, use_bias, name=name)

  def project(self, x_BxLxI: jax.Array, width: int, name: str,
              use_bias: bool = False, times: int = 1) -> jax.Array:
    """Projects to `times` H heads of `width`: [B, L, times * H, width]."""
    return self.projection(
        x_BxLxI.shape[-1], width, name, use_bias, times)(x_BxLxI)

  def both_ways(self, run: Callable, operands: Callable[[bool], tuple],
                mask_BxL: jax.Array, steps: int = 1) -> list[jax.Array]:
    """Runs a recurrence from the first token on; if bidirectional, both ways.

    Both ways are one call, with twice as many heads: it compiles in half the
    time, and fills a GPU better.

    Args:
      run: function of arrays [B, T, H, ...] to the outputs [B, T, H, E], which
        reads tokens in order.
      operands: function of `reverse`, whether to begin at the last token. It
        returns the arguments of `run`, arrays or None.
      mask_BxL: True = token. The arguments become 0 at other positions.
      steps: number of adjacent positions in T that belong to one token. The
        output of a token is the output at its last position.

    Returns:
      The outputs of each direction, [B, L, H, E]; 0 at masked tokens.
    """
    runs = (False, True)[:direction.passes(self.direction)]
    mask_BxT = jnp.repeat(mask_BxL, steps, axis=1)
    given = [jax.tree.map(lambda y, reverse=reverse: _turned(
        _kept(mask_BxT, y), reverse), operands(reverse)) for reverse in runs]
    o_BxTxH = run(*jax.tree.map(
        lambda *y: jnp.concatenate(y, axis=2), *given))
    o_BxLxH = o_BxTxH[:, steps - 1::steps]
    return [_kept(mask_BxL, _turned(y, reverse)) for y, reverse in zip(
        jnp.split(o_BxLxH, len(runs), axis=2), runs, strict=True)]


def width_argument():
  """Returns a field for the width of all heads; 0 stands for a default."""
  return fields.argument(0, low=0, high=fields.MANY)


def _kept(mask_BxT, y):
  """Returns y with 0 at masked tokens, which then do not change the state."""
  keep = mask_BxT.reshape(*mask_BxT.shape, *(1,) * (y.ndim - 2))
  return jnp.where(keep, y, 0)


def _turned(y, reverse):
  return jnp.flip(y, 1) if reverse else y
