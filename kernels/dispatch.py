"""Chooses the kernel of a call, by device, shapes and dtype."""

import contextlib
import contextvars
import functools
import importlib
import logging

import jax

from lra.kernels import checks

# The kernels of every operation. The first runs every valid call of the public
# function; 'auto' takes the last that can run.
OPS = {'linear': ('xla', 'pallas_tpu', 'pallas_triton', 'pallas_gpu'),
       'simpletron': ('xla', 'pallas_tpu', 'pallas_triton', 'pallas_gpu'),
       'lightning': ('xla', 'pallas_tpu', 'pallas_triton', 'pallas_gpu'),
       'softmax': ('dense', 'chunked', 'splash', 'cudnn'),
       'norm_project': ('xla', 'pallas_triton'),
       'scan': ('xla', 'pallas_tpu', 'pallas_triton'),
       'gated': ('xla', 'pallas_tpu'), 'delta': ('xla',)}
# Names of the further requirements that `resolve` accepts for each operation.
_NEEDS = {
    'linear': ('value_width', 'state', 'segments'),
    'simpletron': ('state', 'segments'), 'lightning': ('state', 'segments'),
    'softmax': ('value_width', 'dropout_rate', 'bias'), 'norm_project': (),
    'scan': (), 'gated': ('value_width', 'channels', 'groups'),
    'delta': ()}
# SimpleTRON is linear attention with identity features and no normaliser. A
# delta rule is gated linear attention that writes differences.
_RUNS = {'simpletron': 'linear', 'delta': 'gated'}
_PLATFORM = {'pallas_tpu': 'tpu', 'pallas_triton': 'gpu', 'pallas_gpu': 'gpu',
             'splash': 'tpu', 'cudnn': 'gpu'}

# (platform, interpreter parameters) inside `target`, else None.
_target = contextvars.ContextVar('kernels_target', default=None)


@contextlib.contextmanager
def target(platform, interpret=None):
  """Traces for `platform` ('tpu', 'gpu', 'cpu') instead of the local device.

  Use it to compile ahead of time, or to interpret kernels with the parameters
  `interpret`, for example `pltpu.InterpretParams()`. The platform is not part
  of jit's cache key, so jit a new function inside the context.
  """
  if platform not in ('tpu', 'gpu', 'cpu'):
    raise ValueError(f"platform must be 'tpu', 'gpu' or 'cpu': {platform!r}")
  token = _target.set((platform, interpret))
  try:
    yield
  finally:
    _target.reset(token)


def target_is_local():
  return _target.get() is None


def local_gpu():
  return next((d for d in jax.local_devices() if d.platform in ('gpu', 'cuda')),
              None)


def interpret_params():
  return None if _target.get() is None else _target.get()[1]


def resolve(op, kernel, shape, dtype, **needs):
  """Returns the kernel that a call would run here and now: one of `OPS[op]`.

  If 'auto' finds no kernel for this device that can run, it warns once.

  Args:
    op: one of `OPS`.
    kernel: one of `OPS[op]`, or 'auto' (or None) for the best that can run.
    shape: shape (B, L, H, Dh) of q. For 'norm_project' it is the shape
      (B, L, E) of o, for 'scan' that of x. For 'gated' H is that of v.
    dtype: dtype of q (of o for 'norm_project', of x for 'scan').
    **needs: `value_width` (int, if it is not Dh), `state` (bool: takes or
      returns a state), `segments` (bool: several sequences per row),
      `dropout_rate`, `bias` (bool), `channels` (bool: a gate of each channel),
      `groups` (int: heads of q, if not H), as far as `op` has them.

  Raises:
    ValueError: unknown op, kernel or need, or an impossible shape or dtype.
    NotImplementedError: a named kernel cannot run here; gives the reason.
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
  """Returns for each kernel why it cannot run here, '' if it can; best first.
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
  """Returns the module of a kernel; see `lra.kernels.call`."""
  try:
    return importlib.import_module(f'lra.kernels.{_RUNS.get(op, op)}.{kernel}')
  except ImportError as error:
    raise NotImplementedError(f"{op}: kernel='{kernel}' is not available with "
                              f"jax {jax.__version__}: "
                              f'{error}') from error


def triton_module(name, *operands):
  """Returns the module `kernels.<name>.pallas_triton`, or None."""
  if platform() != 'gpu':
    return None
  try:
    module = backend(name, 'pallas_triton')
    module.supported(*operands)
  except NotImplementedError:
    return None
  return module


def may_be_pallas(kernel):
  return platform() != 'cpu' and (kernel in (None, 'auto', *_PLATFORM))


def platform():
  """Returns the platform that programs are traced for: 'cpu', 'gpu', 'tpu'."""
  if _target.get() is not None:
    return _target.get()[0]
  return jax.default_backend()


def _kernels(op):
  if op not in OPS:
    raise ValueError(f'op must be one of {tuple(OPS)}, got {op!r}')
  return OPS[op]


def _say_fallback(op, chosen, reasons):
  own = [name for name, owner in _PLATFORM.items() if owner == platform()]
  refused = [name for name in reasons if name in own]
  if chosen not in own and refused:
    # Later kernels in `reasons` support more, so the last reason helps most.
    reason = reasons[refused[-1]].removeprefix(f'{op}: ')
    _warn_once(f'{op} runs kernel={chosen!r}: {reason}')


@functools.cache
def _warn_once(message):
  logging.getLogger(__name__).warning(message)


def _require(op, kernel, shape, dtype, needs):
  needs = dict(needs)
  if needs.pop('segments', False):
    raise NotImplementedError(f"{op}: kernel='{kernel}' takes no segment_ids: "
                              f"use kernel='{OPS[op][0]}' or 'auto'")
  needed = _PLATFORM.get(kernel, platform())
  if platform() != needed:
    raise NotImplementedError(f"{op}: kernel='{kernel}' needs a {needed} "
                              f"device and this program is for {platform()}: "
                              f"use kernel='{OPS[op][0]}' or 'auto'")
  module = backend(op, kernel)
  try:
    module.supported(tuple(shape), dtype, **needs)
  except NotImplementedError as reason:
    raise NotImplementedError(f'{op}: {reason}') from reason


def like(x, shape, dtype):
  kwargs = {}
  for name in ('vma', 'manual_axis_type'):
    value = getattr(jax.typeof(x), name, None)
    if value is not None:
      kwargs[name] = value
  return jax.ShapeDtypeStruct(shape, dtype, **kwargs)
