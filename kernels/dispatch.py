"""Which kernel runs, and on what."""

import contextlib
import contextvars
import functools
import importlib
import logging

import jax

from kernels import checks

# The kernels of every operation. The first takes everything that the public
# function accepts; 'auto' takes the last that can run.
OPS = {
  'linear': ('xla', 'pallas_tpu', 'pallas_triton', 'pallas_gpu'),
  'simpletron': ('xla', 'pallas_tpu', 'pallas_triton', 'pallas_gpu'),
  'lightning': ('xla', 'pallas_tpu', 'pallas_triton', 'pallas_gpu'),
  'softmax': ('dense', 'chunked', 'splash', 'cudnn'),
  'norm_project': ('xla', 'pallas_triton'),
}
# What else a call may ask of a kernel.
_NEEDS = {
  'linear': ('value_width', 'state', 'segments'),
  'simpletron': ('state', 'segments'),
  'lightning': ('state', 'segments'),
  'softmax': ('value_width', 'dropout_rate', 'bias'),
  'norm_project': (),
}
# SimpleTRON is linear attention with identity features and no normaliser.
_RUNS = {'simpletron': 'linear'}
_PLATFORM = {
  'pallas_tpu': 'tpu',
  'pallas_triton': 'gpu',
  'pallas_gpu': 'gpu',
  'splash': 'tpu',
  'cudnn': 'gpu',
}

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


def resolve(op, kernel, shape, dtype, **needs):
  """The kernel that a call would run here and now.

  Args:
    op: one of `OPS`.
    kernel: one of `OPS[op]`, or 'auto' (None means the same) for the best that
      can run: the device's own where it supports the operands.
    shape: (B, L, H, Dh) of q; of 'norm_project' (B, L, E) of o.
    dtype: dtype of q, or of o.
    **needs: what else the call asks of a kernel: `value_width` (int, where it
      is not Dh) of 'linear' and 'softmax', `state` (bool: takes or returns
      one) and `segments` (bool: several sequences in a row) of the linear
      ones, `dropout_rate` and `bias` (bool: of distances) of 'softmax'.

  Returns:
    One of `OPS[op]`. Where 'auto' finds none of the device's own that can run,
    a warning says why, once.

  Raises:
    ValueError: unknown op, kernel or need; a shape or dtype that no call has.
    NotImplementedError: a named kernel cannot run here; says why.
  """
  names = _kernels(op)
  if kernel in (None, 'auto'):
    reasons = explain(op, shape, dtype, **needs)
    chosen = next(name for name, reason in reasons.items() if not reason)
    if platform() != 'cpu':
      _say_fallback(op, chosen, reasons)
    return chosen
  if kernel not in names:
    raise ValueError(f"kernel must be 'auto' or one of {names}, got {kernel!r}")
  checks.check_asked(op, shape, dtype, needs, _NEEDS[op])
  if kernel != names[0]:
    _require(op, kernel, shape, dtype, needs)
  return kernel


def explain(op, shape, dtype, **needs):
  """Why `resolve` chooses as it does: the first kernel without a reason.

  Args:
    op, shape, dtype, **needs: see `resolve`.

  Returns:
    name -> reason why it cannot run here, '' where it can; best first.

  Raises:
    ValueError: see `resolve`.
  """
  first, *rest = _kernels(op)
  checks.check_asked(op, shape, dtype, needs, _NEEDS[op])
  reasons = {}
  for name in reversed(rest):
    try:
      _require(op, name, shape, dtype, needs)
      reasons[name] = ''
    except NotImplementedError as reason:
      reasons[name] = str(reason)
  return {**reasons, first: ''}


def backend(op, kernel):
  """The module of a kernel, imported when first asked for."""
  try:
    return importlib.import_module(f'kernels.{_RUNS.get(op, op)}.{kernel}')
  except ImportError as error:
    raise NotImplementedError(
      f"{op}: kernel='{kernel}' is not available with jax {jax.__version__}: "
      f'{error}'
    ) from error


def triton_module(name, *operands):
  """The Triton kernels of an operation that is plain XLA elsewhere.

  Args:
    name: of a folder that has no public function and no other kernel.
    *operands: arguments of the module's `supported`.

  Returns:
    The module `kernels.<name>.pallas_triton`, or None if it cannot run here.
  """
  if platform() != 'gpu':
    return None
  try:
    module = backend(name, 'pallas_triton')
    module.supported(*operands)
  except NotImplementedError:
    return None
  return module


def may_be_pallas(kernel):
  """Whether a call with that `kernel` may run a Pallas kernel here."""
  return platform() != 'cpu' and (kernel in (None, 'auto', *_PLATFORM))


def platform():
  """'cpu', 'gpu' or 'tpu': what programs are traced for."""
  if _target.get() is not None:
    return _target.get()[0]
  return jax.default_backend()


def _kernels(op):
  if op not in OPS:
    raise ValueError(f'op must be one of {tuple(OPS)}, got {op!r}')
  return OPS[op]


def _say_fallback(op, chosen, reasons):
  """Warns where a device has kernels of its own and none of them can run."""
  own = [name for name, owner in _PLATFORM.items() if owner == platform()]
  refused = [name for name in reasons if name in own]
  if chosen not in own and refused:
    # The last to be refused takes the most.
    reason = reasons[refused[-1]].removeprefix(f'{op}: ')
    _warn_once(f'{op} runs kernel={chosen!r}: {reason}')


@functools.cache
def _warn_once(message):
  logging.getLogger(__name__).warning(message)


def _require(op, kernel, shape, dtype, needs):
  needs = dict(needs)
  if needs.pop('segments', False):
    raise NotImplementedError(
      f"{op}: kernel='{kernel}' takes no segment_ids: use "
      f"kernel='{OPS[op][0]}' or 'auto'"
    )
  needed = _PLATFORM.get(kernel, platform())
  if platform() != needed:
    raise NotImplementedError(
      f"{op}: kernel='{kernel}' needs a {needed} device and this program is "
      f"for {platform()}: use kernel='{OPS[op][0]}' or 'auto'"
    )
  module = backend(op, kernel)
  try:
    module.supported(tuple(shape), dtype, **needs)
  except NotImplementedError as reason:
    raise NotImplementedError(f'{op}: {reason}') from reason


def like(x, shape, dtype):
  """An output description that varies over the mesh axes as `x` does."""
  kwargs = {}
  for name in ('vma', 'manual_axis_type'):
    value = getattr(jax.typeof(x), name, None)
    if value is not None:
      kwargs[name] = value
  return jax.ShapeDtypeStruct(shape, dtype, **kwargs)
