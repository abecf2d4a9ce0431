"""Arrays and options of linear, SimpleTRON and lightning attention."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import xla


@dataclasses.dataclass(frozen=True)
class Options:
  feature_map: str = 'elu1'
  normalize: bool = True
  activation: str = 'identity'
  scale: float = 1.0
  eps: float = 1e-6
  return_state: bool = False
  interpret: Any = None


class Inputs(NamedTuple):
  """The arrays of a call.

  Attributes:
    arrays: (q, k, v), each [B, L, H, Dh]; or (qkv,), [B, L, 3, H, Dh].
    bias: float32 [3, H, Dh] or None. A projection has already added it.
      Backward kernels sum its gradient, which saves a pass over gradients.
    mask: bool [B, L] or None.
    slopes: float32 [H] for lightning attention, else None.
    state: state before the first token, or None. It is float32 [B, H, Dh, Dh],
      for a normaliser a pair of this and float32 [B, H, Dh].
  """
  arrays: tuple
  bias: Any = None
  mask: Any = None
  slopes: Any = None
  state: Any = None

  @property
  def packed(self):
    return len(self.arrays) == 1

  @property
  def shape(self):
    b, length, *_, h, d = self.arrays[0].shape
    return b, length, h, d

  @property
  def dtype(self):
    return self.arrays[0].dtype

  def apart(self):
    """Returns (q, k, v), each [B, L, H, Dh]; copies packed arrays."""
    if not self.packed:
      return self.arrays
    return tuple(self.arrays[0][:, :, i] for i in range(3))

  def with_variable_bias(self):
    """Makes the arrays depend on the bias, without changing their values.

    Autodiff in plain XLA then computes its gradient.
    """
    if self.bias is None:
      return self
    nothing = self.bias - jax.lax.stop_gradient(self.bias)
    # The sum is float32, so autodiff adds the bias's gradient up in float32.
    arrays = tuple((x + nothing).astype(x.dtype) for x in self.arrays)
    return self._replace(arrays=arrays, bias=None)

  def masked(self):
    """Sets q, k and v to 0 at masked tokens, where they may be NaN."""
    return self._replace(
        arrays=tuple(xla.keep(self.mask, x) for x in self.arrays))

  def activated(self):
    """Applies SiLU to q, k and v outside the kernel, where autodiff handles it.

    Both are computed in float32 and rounded once, like in the kernels.
    """
    exact = tuple(x.astype(jnp.float32) for x in self.arrays)
    whole = self._replace(arrays=exact).with_variable_bias().masked()
    return whole._replace(
        arrays=tuple(jax.nn.silu(x).astype(self.dtype) for x in whole.arrays))

  def gradients(self, arrays, bias=None, state=None):
    """Returns gradients in the form of these inputs.

    `arrays` has three gradients or one packed. Without `bias`, it is summed.
    """
    if self.bias is not None and bias is None:
      sums = [x.sum((0, 1), dtype=jnp.float32) for x in arrays]
      bias = sums[0] if len(sums) == 1 else jnp.stack(sums)
    if self.packed and len(arrays) == 3:
      arrays = (jnp.stack(arrays, axis=2),)
    if self.state is None:
      state = None
    elif state is None:
      state = jax.tree.map(jnp.zeros_like, self.state)
    return Inputs(tuple(arrays), None if self.bias is None else bias,
                  state=state)


def check_value_width(shape, value_width):
  """Raises NotImplementedError if values are not as wide as features."""
  if value_width not in (None, shape[-1]):
    raise NotImplementedError(
        'the Pallas kernels need features as wide as the values, got '
        f"{shape[-1]} and {value_width}: use kernel='xla' or 'auto'")
