"""Runs a Pallas TPU kernel with optional operands and results."""

import math
import types

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
# VMEM that the compiler grants by default, and VMEM of all TPUs except a v4.
DEFAULT_VMEM = 16 * 1024 * 1024
MAX_VMEM = 64 * 1024 * 1024


def call(kernel, ins, outs, *, grid, semantics, scratch, interpret, flops,
         transcendentals=0, aliases=()):
  """Runs a kernel with optional operands and results.

  Args:
    kernel: function of two namespaces of references, inputs and outputs (None
      if absent), and of the scratch references.
    ins: name -> (BlockSpec, array or None). To give one array several names,
      separate them by blanks.
    outs: name -> (BlockSpec, jax.ShapeDtypeStruct or None), likewise.
    grid, semantics: the grid and the dimension semantics of its axes.
    scratch: shapes of float32 scratch memory.
    interpret: None to compile, else the interpreter's parameters.
    flops, transcendentals: cost of the kernel, for XLA's scheduler.
    aliases: (input, output) pairs of names that share memory.

  Returns:
    name -> array or None, for every output.
  """

  def body(in_refs, out_refs, *scratch_refs):
    kernel(named(in_refs), named(out_refs), *scratch_refs)

  def named(refs):
    apart = {n: x for names, x in refs.items() for n in names.split()}
    return types.SimpleNamespace(**apart)

  def present(pairs):
    return {n: None if x is None else spec for n, (spec, x) in pairs.items()}

  def values(pairs):
    return {name: x for name, (_, x) in pairs.items()}

  def leaf(pairs, name):
    """Returns the index of `name` among present arrays, in jax.tree's order."""
    return sorted(n for n, (_, x) in pairs.items() if x is not None).index(name)

  arrays = [(s, x) for s, x in (*ins.values(), *outs.values()) if x is not None]
  return pl.pallas_call(
      body, grid=grid, in_specs=[present(ins)], out_specs=present(outs),
      out_shape=values(outs),
      scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
      input_output_aliases={leaf(ins, i): leaf(outs, o) for i, o in aliases},
      compiler_params=pltpu.CompilerParams(
          dimension_semantics=semantics,
          vmem_limit_bytes=_vmem(arrays, scratch)),
      cost_estimate=pl.CostEstimate(
          flops=flops, transcendentals=transcendentals,
          bytes_accessed=sum(x.size * x.dtype.itemsize for _, x in arrays)),
      interpret=False if interpret is None else interpret)(values(ins))


def _vmem(arrays, scratch):
  """Returns the bytes of VMEM to request; None if the default is enough."""
  total = sum(padded(shape, 4) for shape in scratch)
  for spec, x in arrays:
    if spec.block_shape is not None:
      total += 2 * padded(spec.block_shape, x.dtype.itemsize)
  # Twice as much, for values that do not fit into registers.
  return min(2 * total, MAX_VMEM) if 2 * total > DEFAULT_VMEM else None


def padded(shape, itemsize):
  """Returns the bytes of a block in VMEM: tiles of (8, 128) words."""
  *major, rows, lanes = shape
  sublanes = 32 // itemsize
  rows, lanes = (pl.cdiv(n, m) * m
                 for n, m in ((rows, sublanes), (lanes, LANES)))
  return math.prod(major) * rows * lanes * itemsize
