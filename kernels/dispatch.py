"""Which implementation runs, on what, and how it meets vmap and meshes."""

import contextlib
import contextvars
import functools
import importlib

import jax
from jax.custom_batching import custom_vmap
from jax.sharding import PartitionSpec

OPS = ('linear', 'simpletron', 'lightning')
IMPLEMENTATIONS = ('xla', 'pallas_tpu', 'pallas_gpu')
_PLATFORM = {'pallas_tpu': 'tpu', 'pallas_gpu': 'gpu'}

# (platform, interpreter parameters) set by `target`, else None.
_target = contextvars.ContextVar('kernels_target', default=None)


@contextlib.contextmanager
def target(platform, interpret=None):
  """Traces for `platform` ('tpu', 'gpu', 'cpu') instead of the local device.

  For ahead-of-time compilation, and for the interpreters: pass their
  parameters as `interpret` (such as `pltpu.InterpretParams()`). The choice is
  not part of jit's cache key, so jit a fresh function inside the context.
  """
  if platform not in ('tpu', 'gpu', 'cpu'):
    raise ValueError(f"platform must be 'tpu', 'gpu' or 'cpu': {platform!r}")
  token = _target.set((platform, interpret))
  try:
    yield
  finally:
    _target.reset(token)


def target_is_local():
  """True unless inside `target`: then the local devices say nothing."""
  return _target.get() is None


def interpret_params():
  """The interpreter parameters of the enclosing `target`, or None."""
  return None if _target.get() is None else _target.get()[1]


def resolve(op, implementation, shape, dtype):
  """The implementation that a call would run here and now.

  Args:
    op: 'linear', 'simpletron' or 'lightning'.
    implementation: 'xla', 'pallas_tpu', 'pallas_gpu', or None or 'auto' for
      the device's own kernel if it supports the operands, else 'xla'.
    shape: (B, L, H, Dh) of q.
    dtype: dtype of q.

  Returns:
    One of 'xla', 'pallas_tpu', 'pallas_gpu'.

  Raises:
    ValueError: unknown op or implementation.
    NotImplementedError: a named implementation cannot run here; says why.
  """
  if op not in OPS:
    raise ValueError(f'op must be one of {OPS}, got {op!r}')
  if implementation in (None, 'auto'):
    return _best(op, shape, dtype)
  if implementation not in IMPLEMENTATIONS:
    raise ValueError(
      f'implementation must be one of {IMPLEMENTATIONS}, None or '
      f"'auto', got {implementation!r}"
    )
  if implementation != 'xla':
    _require(op, implementation, shape, dtype)
  return implementation


def backend(op, implementation):
  """The module of an implementation, imported when first asked for."""
  module = 'reference' if implementation == 'xla' else implementation
  name = f'kernels.{op}.{module}'
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise NotImplementedError(
      f"implementation='{implementation}' is not available for {op} with jax "
      f'{jax.__version__}: {error}'
    ) from error


def platform():
  """'cpu', 'gpu' or 'tpu': what programs are traced for."""
  if _target.get() is not None:
    return _target.get()[0]
  return jax.default_backend()


def _best(op, shape, dtype):
  for name, needed in _PLATFORM.items():
    if needed == platform():
      try:
        _require(op, name, shape, dtype)
        return name
      except NotImplementedError:
        return 'xla'
  return 'xla'


def _require(op, implementation, shape, dtype):
  needed = _PLATFORM[implementation]
  if platform() != needed:
    raise NotImplementedError(
      f"implementation='{implementation}' needs a {needed} device and this "
      f"program is for {platform()}: use implementation='xla' or None"
    )
  module = backend(op, implementation)
  module.supported(tuple(shape), dtype, interpret=interpret_params())


def like(x, shape, dtype):
  """An output description that varies over the mesh axes as `x` does."""
  kwargs = {}
  for name in ('vma', 'manual_axis_type'):
    value = getattr(jax.typeof(x), name, None)
    if value is not None:
      kwargs[name] = value
  return jax.ShapeDtypeStruct(shape, dtype, **kwargs)


def over_batch(implementation, function, shared=()):
  """`function` with vmap folded into the leading (batch) dimension.

  Plain XLA is left alone: it has rules of its own for every transformation.
  Every argument and result leaf has the batch in front, except the arguments
  at the positions in `shared`. A vmap over a shared argument runs one call
  after the other.
  """
  if implementation == 'xla':
    return function

  @custom_vmap
  def call(*args):
    return function(*args)

  @call.def_vmap
  def rule(size, batched, *args):
    if any(any(jax.tree.leaves(batched[i])) for i in shared):
      outs = _one_by_one(call, size, batched, args)
    else:
      outs = _folded(call, size, batched, args, shared)
    return outs, jax.tree.map(lambda _: True, outs)

  return call


def _folded(call, size, batched, args, shared):
  def fold(x, is_batched):
    if not is_batched:
      x = jax.numpy.broadcast_to(x[None], (size, *x.shape))
    return x.reshape(size * x.shape[1], *x.shape[2:])

  folded = [
    arg if i in shared else jax.tree.map(fold, arg, batched[i])
    for i, arg in enumerate(args)
  ]
  return jax.tree.map(
    lambda x: x.reshape(size, x.shape[0] // size, *x.shape[1:]), call(*folded)
  )


def _one_by_one(call, size, batched, args):
  def pick(i):
    return jax.tree.map(
      lambda x, b: jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
      if b
      else x,
      args,
      tuple(batched),
    )

  return jax.lax.map(lambda i: call(*pick(i)), jax.numpy.arange(size))


def sharded(function, mesh=None, axis='data'):
  """`function` (one of the three ops) split over the batch under a mesh.

  Pallas calls cannot be partitioned by the compiler, so they run inside
  `jax.shard_map`. q, k, v, mask and initial_state are split over mesh axis
  `axis` along B, slopes are replicated, results are split along B.

  Args:
    function: an op of this package.
    mesh: jax.sharding.Mesh; None takes the ambient one of `jax.set_mesh`.
    axis: name of the mesh axis that splits the batch.

  Returns:
    A function with the arguments of `function`. It is plain `function` where
    there is no mesh, where the axis has one device or is already split by an
    enclosing shard_map, and for a batch that the axis does not divide.
  """
  if mesh is None:
    mesh = jax.sharding.get_abstract_mesh()
  devices = mesh.shape.get(axis, 1) if not mesh.empty else 1
  if devices == 1 or axis in getattr(mesh, 'manual_axes', ()):
    return function

  @functools.wraps(function)
  def call(q, k, v, *, mask=None, slopes=None, initial_state=None, **static):
    arrays = {'mask': mask, 'slopes': slopes, 'initial_state': initial_state}
    arrays = {name: x for name, x in arrays.items() if x is not None}
    if q.shape[0] % devices:
      return function(q, k, v, **arrays, **static)
    split = PartitionSpec(axis)
    specs = {name: split for name in arrays}
    if slopes is not None:
      specs['slopes'] = PartitionSpec()
    local = jax.shard_map(
      lambda q, k, v, arrays: function(q, k, v, **arrays, **static),
      mesh=mesh,
      in_specs=(split, split, split, specs),
      out_specs=split,
      check_vma=False,
    )
    return local(q, k, v, arrays)

  return call
