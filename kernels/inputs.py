"""The arrays of a call, as every kernel of the linear operations takes them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Inputs(NamedTuple):
  """The arrays of a call.

  Attributes:
    arrays: (q, k, v), each [B, L, H, Dh]; or (qkv,), [B, L, 3, H, Dh], as one
      product of a projection leaves it.
    bias: float32 [3, H, Dh] or None: what the projection has already added to
      q, k and v. No kernel adds it; the backward kernels, which make the
      gradients of q, k and v, also sum them over the tokens, so that the
      gradient of the bias takes no pass of its own.
    mask: bool [B, L] or None.
    slopes: float32 [H], of lightning attention, else None.
    state: what came before the first token, or None: the float32 sums
      [B, H, Dh, Dh] of lightning attention and SimpleTRON, the pair of them
      and of the normaliser's [B, H, Dh] of linear attention.
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
    """(B, L, H, Dh)."""
    b, length, *_, h, d = self.arrays[0].shape
    return b, length, h, d

  @property
  def dtype(self):
    return self.arrays[0].dtype

  def apart(self):
    """(q, k, v), each [B, L, H, Dh]; copies where they are packed."""
    if not self.packed:
      return self.arrays
    return tuple(self.arrays[0][:, :, i] for i in range(3))


def with_variable_bias(inputs):
  """The same for plain XLA, which differentiates by itself: bias included."""
  if inputs.bias is None:
    return inputs
  nothing = inputs.bias - jax.lax.stop_gradient(inputs.bias)
  # Added in float32, so that its gradient is summed over tokens in float32.
  arrays = tuple((x + nothing).astype(x.dtype) for x in inputs.arrays)
  return inputs._replace(arrays=arrays, bias=None)


def activated(inputs):
  """`Inputs` with SiLU done outside the kernel, and so differentiated.

  It and its gradient are float32 and rounded once, as in the other kernels.
  """
  exact = [x.astype(jnp.float32) for x in inputs.arrays]
  whole = masked(with_variable_bias(inputs._replace(arrays=tuple(exact))))
  return whole._replace(
    arrays=tuple(jax.nn.silu(x).astype(inputs.dtype) for x in whole.arrays)
  )


def masked(inputs):
  """The same with zeros at masked tokens, which may be NaN."""
  if inputs.mask is None:
    return inputs
  return inputs._replace(
    arrays=tuple(
      jnp.where(_beside(inputs.mask, x), x, 0) for x in inputs.arrays
    )
  )


def _beside(mask_BxL, x):
  return mask_BxL.reshape(*mask_BxL.shape, *(1,) * (x.ndim - 2))


def gradients(inputs, arrays, bias, state):
  """The gradients of `Inputs` in its own form, as a backward pass returns it.

  Args:
    inputs: Inputs.
    arrays: the gradients of q, k and v: three arrays [B, L, H, Dh], or one
      [B, L, 3, H, Dh].
    bias: float32 [3, H, Dh], summed by the kernel, or None where it does not.
    state: the gradient of the initial state, or None.
  """
  if inputs.bias is not None and bias is None:
    sums = [x.sum((0, 1), dtype=jnp.float32) for x in arrays]
    bias = sums[0] if len(sums) == 1 else jnp.stack(sums)
  if inputs.packed and len(arrays) == 3:
    arrays = (jnp.stack(arrays, axis=2),)
  if inputs.state is None:
    state = None
  elif state is None:
    state = jax.tree.map(jnp.zeros_like, inputs.state)
  return Inputs(
    tuple(arrays), bias if inputs.bias is not None else None, state=state
  )
