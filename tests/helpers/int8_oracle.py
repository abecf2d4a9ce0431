"""Dense layers with weights and activations rounded to int8, in float64."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from lra.nn import layers


def rounded(x, axes):
  """Returns float64 x on its int8 grid, one scale per sum over `axes`."""
  x = np.asarray(x, np.float64)
  scale = np.abs(x).max(axes, keepdims=True) / 127
  scale = np.where(scale == 0, 1, scale)
  return np.rint(x / scale) * scale


def product(x, kernel, bias, ins: int):
  """Returns x W + b of rounded factors, float64 [..., *outs]."""
  x_axes = tuple(range(x.ndim - ins, x.ndim))
  w_axes = tuple(range(ins))
  return np.tensordot(rounded(x, x_axes), rounded(kernel, w_axes),
                      (x_axes, w_axes)) + np.asarray(bias, np.float64)


def logits(model, variables, inputs):
  """Returns the outputs of a model whose dense layers are rounded.

  It runs without compilation; all else is as in the model.
  """
  def dense(call, args, options, context):
    layer = context.module
    if context.method_name != '__call__' or not isinstance(
        layer, nn.Dense | layers.Projection):
      return call(*args, **options)
    ins = len(layer.ins) if isinstance(layer, layers.Projection) else 1
    params = layer.variables['params']
    return jnp.float32(product(args[0], params['kernel'], params['bias'], ins))

  with nn.intercept_methods(dense):
    return model.apply(variables, inputs, train=False)
