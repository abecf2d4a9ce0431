"""LayerNorm in Triton: one kernel forward, one backward.

  m = mean(x),  r = (mean((x - m)^2) + eps)^(-1/2),  x^ = (x - m) r
  y = x^ scale + bias

A backward program walks over many blocks of rows. So XLA adds only few partial
sums for scale and bias, in a fixed order.

Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 3
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from lra.kernels import dispatch, triton
from lra.kernels.triton import Plan, Shape, Tools, Walk, padded, zeros

WIDEST = 2048  # columns; a program holds whole rows in its registers
WARPS, PER_CORE = 4, 4
FORWARD, BACKWARD = 4096, 2048  # entries of a block


def supported(width, *dtypes):
  if width > WIDEST:
    raise NotImplementedError('pallas_triton supports widths D up to '
                              f'{WIDEST}, got {width}')
  triton.check(*dtypes)


def forward(x, scale_D, bias_D, eps, dtype):
  """Returns y, and the float32 [N] means and 1 / standard deviations of tokens.

  x is [..., D], float32 or bfloat16; scale and bias are float32; y has `dtype`.
  """
  x_NxD = triton.rows(x)
  count = x_NxD.shape[:1]
  plan = _plan(x_NxD.shape, FORWARD, eps, cut=False)
  outs = _run('layer_norm', _outputs, plan,
              {'x': x_NxD, 'scale': scale_D[None], 'bias': bias_D[None]},
              {'y': (x_NxD.shape, dtype), 'mean': (count, jnp.float32),
               'inverse': (count, jnp.float32)})
  return outs['y'].reshape(x.shape), outs['mean'], outs['inverse']


def backward(x, mean_N, inverse_N, scale_D, dy, beside):
  """Returns gradients of x in its dtype, of scale and bias in float32.

  `beside` is the gradient that x gets from the residual sum, in the dtype of x.
  It is added to the gradient of x.
  """
  x_NxD = triton.rows(x)
  plan = _plan(x_NxD.shape, BACKWARD, None)
  sums = (plan.parts, x_NxD.shape[1]), jnp.float32
  outs = _run('layer_norm_gradients', _gradients, plan,
              {'x': x_NxD, 'dy': triton.rows(dy), 'beside': triton.rows(beside),
               'mean': mean_N, 'inverse': inverse_N, 'scale': scale_D[None]},
              {'dx': (x_NxD.shape, x_NxD.dtype), 'dscale': sums, 'dbias': sums})
  dx = outs['dx'].reshape(x.shape)
  return dx, outs['dscale'].sum(0), outs['dbias'].sum(0)


def _plan(shape, entries, eps, cut=True):
  n, width = shape
  lanes = padded(width)
  rows = min(entries // lanes, padded(n))
  shape = Shape(1, n, 1, width, False, rows, lanes)
  parts, per_part = shape.blocks, 1
  if cut:
    parts, per_part = triton.cut(n, 1, rows, PER_CORE)
  return Plan(shape, parts, per_part, eps, Tools(False))


def _run(name, kernel, plan, ins, outs):
  return triton.call(name, kernel, ins, outs, grid=(1, plan.parts, 1),
                     warps=WARPS, stages=2,
                     interpret=dispatch.interpret_params(), plan=plan)


def _outputs(ins, outs, *, plan):
  shape, walk = plan.shape, Walk(plan)
  at, n = walk.at, walk.first
  inside = at.valid(None, n)
  x = at.load(ins.x, n, inside).astype(jnp.float32)
  mean = jnp.sum(x, axis=1) / shape.width
  apart = x - mean[:, None]
  if shape.lanes != shape.width:
    lane = lax.broadcasted_iota(jnp.int32, apart.shape, 1)
    apart = jnp.where(lane < shape.width, apart, 0.0)
  variance = jnp.sum(apart * apart, axis=1) / shape.width
  inverse = lax.rsqrt(variance + plan.options)
  scale, bias = (at.load_row(ref, at.b) for ref in (ins.scale, ins.bias))
  y = apart * inverse[:, None] * scale[None] + bias[None]
  at.store(outs.y, n, None, y)
  for ref, value in ((outs.mean, mean), (outs.inverse, inverse)):
    plt.store(_rows(ref, shape, n), value, mask=inside)


def _gradients(ins, outs, *, plan):
  """Computes dx of a part, and its sums for scale and bias."""
  shape, walk = plan.shape, Walk(plan)
  at = walk.at
  scale = at.load_row(ins.scale, at.b)

  def step(n, again, sums):
    inside = at.valid(None, n)
    x, dy, beside = (at.load(ref, n, inside).astype(jnp.float32)
                     for ref in (ins.x, ins.dy, ins.beside))
    mean, inverse = (_number(ref, shape, n, inside)[:, None]
                     for ref in (ins.mean, ins.inverse))
    unit, g = (x - mean) * inverse, dy * scale[None]
    along = jnp.sum(g * unit, axis=1, keepdims=True) / shape.width
    level = jnp.sum(g, axis=1, keepdims=True) / shape.width
    dx = beside + inverse * (g - level - unit * along)
    at.store(outs.dx, again, None, dx)
    dscale, dbias = sums
    return dscale + dy * unit, dbias + dy

  # The sums over rows come last, because several threads share a row.
  start = zeros(shape.rows, shape.lanes)
  dscale, dbias = walk.run(step, (start, start))
  at.store_row(outs.dscale, walk.part, jnp.sum(dscale, axis=0))
  at.store_row(outs.dbias, walk.part, jnp.sum(dbias, axis=0))


def _rows(ref, shape, n):
  return ref.at[pl.ds(n * shape.rows, shape.rows)]


def _number(ref, shape, n, inside):
  rows = _rows(ref, shape, n)
  if inside is None:
    return plt.load(rows)
  return plt.load(rows, mask=inside, other=0.0)
