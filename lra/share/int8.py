"""Quantises the dense layers of a trained model to int8, with Qwix.

Each weight matrix is stored once as int8, with a float32 scale for each output
channel. The activations of each token are quantised as the layer runs (dynamic
range, symmetric, largest absolute value). The matmul multiplies int8 by int8
and adds up int32; its result, the bias and all other operations are float.

Only `flax.linen.Dense` and `lra.nn.layers.Projection` are quantised: the
projections of mixers, MLPs and heads. A mixer that takes the weights of a
projection apart multiplies in float, with weights that were rounded to int8:
`mla` and, on accelerators, the packed projections of linear attention and the
output of `lightning`. All else stays float, such as attention's Q K^T.

`qwix.quantize_model` 0.1.8 fails where a projection casts its kernel to the
computing dtype, so this module replaces the calls of the layers.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from lra.core import paths
from lra.core.errors import UserError
from lra.nn import layers
from lra.run.program import Program

_LAYERS = nn.Dense, layers.Projection
# Qwix maps the largest absolute value to 127.5, half way between two integers.
# This factor makes it 127.
_CALIBRATION = f'absmax,{127.5 / 127}'


@dataclasses.dataclass(frozen=True)
class Quantised:
  """A model, whose dense layers are called with int8 weights."""
  model: nn.Module

  def apply(self, variables, *args, **options) -> Any:
    with nn.intercept_methods(_int8):
      return self.model.apply(variables, *args, **options)


def program(made: Program, params, constants) -> tuple[Program, Any]:
  """Returns a program that evaluates, and parameters for it.

  The kernels of dense layers are `qwix.QArray`, the others float32 as before.
  """
  _qwix()  # raises its error before the work
  ins = _found(made, params, constants)
  flat = flax.traverse_util.flatten_dict(params)
  for path, count in ins.items():
    flat[path] = quantise(flat[path], range(count, flat[path].ndim))
  quantised = flax.traverse_util.unflatten_dict(flat)
  other = dataclasses.replace(made, model=Quantised(made.model))
  shape = made.state_shape
  other.__dict__['state_shape'] = shape.replace(params=jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(
          x.shape, x.dtype, sharding=shape.step.sharding), quantised))
  return other, quantised


def num_bytes(params) -> int:
  return sum(math.prod(x.shape) * x.dtype.itemsize
             for x in jax.tree.leaves(params))


def _qwix():
  try:
    import qwix
  except ModuleNotFoundError as error:
    if error.name != 'qwix':
      raise
    raise UserError('int8 needs Qwix, which is not installed: '
                    f'{paths.extra("int8")}.') from error
  return qwix


def _found(made, params, constants):
  """Returns path of each kernel -> number of its input axes."""
  found = {}

  def note(call, args, options, context):
    layer = context.module
    if isinstance(layer, _LAYERS) and context.method_name in (
        '__call__', 'weights'):
      found[(*layer.path, 'kernel')] = _num_ins(layer)
    return call(*args, **options)

  batch = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype)
           in made.objective.shapes(1).items()}
  with nn.intercept_methods(note):
    jax.eval_shape(
        lambda batch: made.model.apply(
            {'params': params, **constants}, made.objective.inputs(batch),
            train=False), batch)
  return found


def _num_ins(layer):
  return len(layer.ins) if isinstance(layer, layers.Projection) else 1


def _int8(call, args, options, context):
  """Computes a dense layer in int8; an interceptor of Flax."""
  layer, method = context.module, context.method_name
  if not isinstance(layer, _LAYERS) or method not in ('__call__', 'weights'):
    return call(*args, **options)
  kernel = layer.get_variable('params', 'kernel')
  bias = layer.get_variable('params', 'bias') if layer.use_bias else None
  if method == 'weights':
    flat = _qwix().dequantize(kernel).reshape(math.prod(layer.ins), -1)
    return flat, None if bias is None else bias.reshape(-1)
  return matmul(*args, kernel, bias, _num_ins(layer), layer.dtype)


def quantise(x: jax.Array, own: Sequence[int]):
  """Returns x as a `qwix.QArray` with a scale for each index of axes `own`."""
  return _qwix().quantize(x, 'int8', channelwise_axes=own,
                          calibration_method=_CALIBRATION)


def matmul(x: jax.Array, kernel, bias: jax.Array | None, ins: int,
           dtype: jnp.dtype | None) -> jax.Array:
  """Computes x W + b with int8 factors: [..., *ins] -> [..., *outs].

  With s_x = max |x| / 127 of a token and s_w = max |w| / 127 of an output
  channel, it is (sum of round(x / s_x) round(w / s_w)) s_x s_w + b. The kernel
  is int8 [*ins, *outs], from `quantise`; `dtype` is that of x by default.
  """
  first = x.ndim - ins
  axes = tuple(range(first, x.ndim)), tuple(range(ins))
  y = _qwix().dot_general(
      quantise(x.astype(jnp.float32), range(first)), kernel, (axes, ((), ())))
  return (y if bias is None else y + bias).astype(dtype or x.dtype)
