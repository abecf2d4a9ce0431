"""Splits operations over a device mesh, by examples and by tokens."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from lra.kernels import dispatch
from lra.kernels.axes import BATCH_AXES, manual
from lra.kernels.linear import api as linear
from lra.kernels.norm_project.api import norm_project
from lra.kernels.sequence import Sequence, check_whole

SEQUENCE_AXIS = 'sequence'

# Operations that take `sequence`, for tokens sharded over devices.
_OVER_TOKENS = (
    linear.linear_attention, linear.linear_attention_packed,
    linear.simpletron_attention, linear.simpletron_attention_packed,
    linear.lightning_attention, linear.lightning_attention_packed)
# Keyword arguments that are replicated on every device.
_REPLICATED = ('slopes', 'bias', 'weight')


def sharded(function, mesh=None):
  """Returns `function` (an op of this package) split over a mesh.

  The compiler cannot partition Pallas calls, so they run inside
  `jax.shard_map`. Positional arguments and keyword arguments that are arrays
  are split along B over the mesh axes `data` and `fsdp`, and so are results.
  Slopes, bias, weight and a constant factor of `linear_scan` are replicated.
  Over the axis `sequence`, linear operations and `norm_project` are split along
  L, which need not be a multiple of the axis; see `lra.kernels.sequence`.

  The result is `function` itself if there is no mesh (None takes the ambient
  one of `jax.set_mesh`), or if all axes have one device or are already split by
  an enclosing shard_map. The batch is split only if its axes divide it.

  If nothing is split and the call may run a Pallas kernel, every device makes
  the whole call. If it cannot (on a CPU, or with plain XLA), or with
  `dropout_key`, the compiler partitions it.
  """
  if mesh is None:
    mesh = jax.sharding.get_abstract_mesh()
  if not _unsplit(mesh):
    return function
  axes = free(mesh)

  @functools.wraps(function)
  def call(*operands, **options):
    batch, length = operands[0].shape[:2]
    over = _over_batch(mesh)
    count = math.prod(mesh.shape[axis] for axis in over)
    if batch % count:
      over, count = (), 1
    tokens = (SEQUENCE_AXIS
              if SEQUENCE_AXIS in axes
              and (function in _OVER_TOKENS or function is norm_project)
              else None)
    pallas = dispatch.may_be_pallas(options.get('kernel'))
    whole = count == 1 and not tokens
    if whole and not pallas or options.get('dropout_key') is not None:
      return function(*operands, **options)
    if tokens:
      check_whole(**options)
      options, operands = _filled(function, operands, options,
                                  -length % mesh.shape[tokens])
      if function in _OVER_TOKENS:
        options['sequence'] = Sequence(tokens, mesh.shape[tokens], length)
    arrays = {n: x for n, x in options.items() if _is_array(x)}
    static = {n: x for n, x in options.items() if n not in arrays}
    split = PartitionSpec(over or None, tokens)
    by_batch = PartitionSpec(over or None)
    specs = {n: PartitionSpec() if n in _REPLICATED or n == 'a' and x.ndim == 1
             else split if n == 'mask' else by_batch
             for n, x in arrays.items()}
    local = jax.shard_map(
        lambda operands, arrays: function(*operands, **arrays, **static),
        mesh=mesh, in_specs=(split, specs),
        out_specs=split if tokens else by_batch,
        axis_names=set(mesh.axis_names) - set(manual(mesh)), check_vma=False)
    out = local(operands, arrays)
    return out[:, :length] if tokens else out

  return call


def over_tokens(function, pallas=False):
  """Returns `function` applied to each device's tokens.

  Use it if the compiler would gather all tokens of a mesh that splits
  sequences, for example for the gradient of a table that is read token by
  token. Use it for Pallas kernels too, which the compiler cannot partition.

  The result is `function` itself if no mesh splits sequences or, with `pallas`
  (`function` may run a Pallas kernel), if no axis is left to split. L must be a
  multiple of the axis `sequence`. The batch is split only if its axes divide
  it. `function` maps x [B, L, ...] and replicated arrays to [B, L, ...] or a
  tuple of these; each entry depends on its own token and the arrays.
  """
  mesh = jax.sharding.get_abstract_mesh()
  tokens = SEQUENCE_AXIS if splits_tokens() else None
  if not tokens and not (pallas and _unsplit(mesh)):
    return function

  def call(x, *arrays):
    over = _over_batch(mesh)
    if len(x) % math.prod(mesh.shape[axis] for axis in over):
      over = ()
    split = PartitionSpec(over or None, tokens)
    return jax.shard_map(function, mesh=mesh,
                         in_specs=(split, *(PartitionSpec() for _ in arrays)),
                         out_specs=split,
                         axis_names=set(mesh.axis_names) - set(manual(mesh)),
                         check_vma=False)(x, *arrays)

  return call


def splits_tokens():
  return SEQUENCE_AXIS in free(jax.sharding.get_abstract_mesh())


def free(mesh):
  unsplit = _unsplit(mesh)
  return [axis for axis in (*BATCH_AXES, SEQUENCE_AXIS) if axis in unsplit]


def _unsplit(mesh):
  if mesh.empty:
    return []
  return [axis for axis in mesh.axis_names
          if mesh.shape[axis] > 1 and axis not in manual(mesh)]


def _over_batch(mesh):
  return tuple(a for a in BATCH_AXES
               if a in mesh.axis_names and a not in manual(mesh))


def _filled(function, operands, options, rows):
  """Returns (options, operands) with `rows` masked tokens appended."""
  if not rows:
    return dict(options), operands
  if function in _OVER_TOKENS and options.get('mask') is None:
    options = {**options, 'mask': jnp.ones(operands[0].shape[:2], bool)}
  if options.get('mask') is not None:
    options = {**options, 'mask': _fill(options['mask'], rows)}
  return dict(options), tuple(_fill(x, rows) for x in operands)


def _fill(x, rows):
  return jnp.pad(x, [(0, 0), (0, rows)] + [(0, 0)] * (x.ndim - 2))


def _is_array(x):
  leaves = jax.tree.leaves(x)
  return bool(leaves) and all(getattr(leaf, 'ndim', 0) for leaf in leaves)
