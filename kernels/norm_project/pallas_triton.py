"""RMS norm and projection in Triton: one kernel forward, one backward.

Forward reads o and writes y. Backward reads dy and o, writes do and r dy, and
leaves dW = o^T (r dy) to a plain matmul. With t = dy W^T in the registers of a
program,

  do_i = r_i t_i - r_i^3 (t_i . o_i) / E o_i

needs a whole row of t. If a row is too wide, a program computes each of its
blocks of columns twice, for t_i . o_i and for the result.
"""

import dataclasses
import functools

import jax.numpy as jnp

from lra.kernels import dispatch, triton
from lra.kernels.norm_project import pallas_triton_rows as rows
from lra.kernels.triton import Shape, Tools, padded


def supported(shape, dtype):
  del shape, dtype  # all widths and both dtypes are supported
  triton.check()


def forward(inputs, options, save):
  o_NxE, weight_ExD, b_D = inputs
  w_ExD = weight_ExD.astype(o_NxE.dtype)
  size = _forward_size(w_ExD.shape[1], o_NxE.dtype)
  plan = _plan(o_NxE, w_ExD, size, options)
  outs = _run('norm_project', rows.outputs, plan, size,
              plan.o.blocks * plan.y.column_blocks,
              {'o': o_NxE, 'weight': w_ExD, 'bias': b_D[None]},
              {'y': ((o_NxE.shape[0], w_ExD.shape[1]), o_NxE.dtype),
               'r': ((o_NxE.shape[0],), jnp.float32) if save else None},
              options)
  return outs['y'], (w_ExD, outs['r']) if save else None


def backward(inputs, saved, dy_NxD, options):
  o_NxE, (w_ExD, r_N) = inputs.o, saved
  size = _backward_size(o_NxE.shape[1], o_NxE.dtype)
  whole = o_NxE.shape[1] <= size.whole
  plan = _plan(o_NxE, w_ExD, size, options, whole)
  outs = _run(
      'norm_project_gradients', rows.gradients, plan, size, plan.o.blocks,
      {'dy': dy_NxD, 'o': o_NxE, 'weight': w_ExD, 'r': r_N},
      {'do': (o_NxE.shape, o_NxE.dtype), 'scaled': (dy_NxD.shape, dy_NxD.dtype),
       'dbias': ((plan.o.blocks, w_ExD.shape[1]), jnp.float32)},
      options)
  dw_ExD = jnp.dot(o_NxE.T, outs['scaled'], preferred_element_type=jnp.float32)
  return type(inputs)(outs['do'], dw_ExD, outs['dbias'].sum(0))


@dataclasses.dataclass(frozen=True)
class _Size:
  """Sizes of a program: rows; columns of o, W and y that a step multiplies.

  `whole` is the width of o up to which a backward program has whole rows of t.
  """
  rows: int
  o: int
  y: int
  warps: int
  stages: int
  whole: int = 0


def _forward_size(width, dtype):
  if dtype == jnp.float32:
    return _Size(64, 32, min(padded(width), 64), 4, 2)
  return _Size(128, 64, min(padded(width), 128), 8, 3)


def _backward_size(width, dtype):
  lanes = padded(width)
  if dtype == jnp.float32:
    return _Size(32, min(lanes, 128), 32, 8, 2, 256)
  columns = min(lanes, 128 if width <= 512 else 256)
  return _Size(64, columns, 32, 8 if lanes > 128 else 4, 3, 512)


def _plan(o_NxE, w_ExD, size, options, whole=False):
  """Returns a plan with o, W and y each as one sequence of one head."""
  (n, e), d = o_NxE.shape, w_ExD.shape[1]

  def shape(length, width, rows, columns):
    return Shape(1, length, 1, width, False, rows, columns)

  return rows.Plan(
      shape(n, e, size.rows, size.o), shape(e, d, size.o, size.y),
      shape(n, d, size.rows, size.y), options.eps,
      Tools(options.interpret is not None), whole)


def _run(name, kernel, plan, size, programs, ins, outs, options):
  like = functools.partial(dispatch.like, ins['o'])
  return triton.call(name, functools.partial(kernel, plan=plan), ins,
                     {n: x if x is None else like(*x) for n, x in outs.items()},
                     grid=(programs,), warps=size.warps, stages=size.stages,
                     interpret=options.interpret)
