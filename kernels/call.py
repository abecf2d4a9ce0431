"""Inputs and custom gradient that all linear-attention kernels share."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import axes, dispatch


class Inputs(NamedTuple):
  """The arrays that a call passes to its kernel.

  Attributes:
    arrays: (q, k, v), each [B, L, H, Dh]; or (qkv,), [B, L, 3, H, Dh].
    bias: float32 [3, H, Dh] or None. A projection has already added this bias
      to q, k and v. Backward kernels sum its gradient, which saves a separate
      pass over the gradients of q, k and v.
    mask: bool [B, L] or None.
    slopes: float32 [H] for lightning attention, else None.
    state: state before the first token, or None. It is float32 [B, H, Dh, Dh],
      for linear attention a pair of this and float32 [B, H, Dh].
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
    """Returns (B, L, H, Dh)."""
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


def with_variable_bias(inputs):
  """Makes the arrays depend on the bias, without changing their values.

  Autodiff in plain XLA then computes the gradient of the bias. The result has
  no separate bias.
  """
  if inputs.bias is None:
    return inputs
  nothing = inputs.bias - jax.lax.stop_gradient(inputs.bias)
  # The sum is float32, so autodiff adds the bias's gradient up in float32.
  arrays = tuple((x + nothing).astype(x.dtype) for x in inputs.arrays)
  return inputs._replace(arrays=arrays, bias=None)


def activated(inputs):
  """Applies SiLU to q, k and v outside the kernel, where autodiff handles it.

  SiLU and its gradient are computed in float32 and rounded once, like in the
  kernels.
  """
  exact = [x.astype(jnp.float32) for x in inputs.arrays]
  whole = masked(with_variable_bias(inputs._replace(arrays=tuple(exact))))
  return whole._replace(
      arrays=tuple(jax.nn.silu(x).astype(inputs.dtype) for x in whole.arrays))


def masked(inputs):
  """Replaces q, k and v by zeros at masked tokens, where they may be NaN."""
  if inputs.mask is None:
    return inputs
  return inputs._replace(arrays=tuple(jnp.where(_beside(inputs.mask, x), x, 0)
                                      for x in inputs.arrays))


def _beside(mask_BxL, x):
  return mask_BxL.reshape(*mask_BxL.shape, *(1,) * (x.ndim - 2))


def gradients(inputs, arrays, bias, state):
  """Packs gradients into an `Inputs`, as the custom gradient must return them.

  Args:
    inputs: Inputs.
    arrays: three gradients [B, L, H, Dh], or one [B, L, 3, H, Dh].
    bias: gradient of the bias, float32 [3, H, Dh]; None if the kernel has not
      computed it.
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
  return Inputs(tuple(arrays), bias if inputs.bias is not None else None,
                state=state)


def attend(op, kernel, options, inputs):
  """Returns (out, final state or None), computed by a named kernel.

  A kernel's module has two functions besides `supported`:
    forward(inputs, options, save) -> (out [B, L, H, Dh], final state or None,
      further values for the backward pass, or None without `save`);
    backward(inputs, saved, do, dfinal, options) -> (gradients of q, k, v:
      three arrays or, for packed inputs, one [B, L, 3, H, Dh]; gradient of the
      bias or None; gradient of the initial state or None), where dfinal is the
      gradient of the final state or None.
  """
  return _attend(op, kernel, options, axes.alike(inputs))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _attend(op, kernel, options, inputs):
  module = dispatch.backend(op, kernel)
  return module.forward(inputs, options, save=False)[:2]


def _forward(op, kernel, options, inputs):
  module = dispatch.backend(op, kernel)
  out, final, saved = module.forward(inputs, options, save=True)
  return (out, final), (inputs, saved)


def _backward(op, kernel, options, residuals, cotangents):
  inputs, saved = residuals
  module = dispatch.backend(op, kernel)
  return (
      gradients(inputs, *module.backward(inputs, saved, *cotangents, options)),)


_attend.defvjp(_forward, _backward)
