"""Argument checks of the public functions; every message names the argument.

All functions raise ValueError, and TypeError for an unknown option.
"""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np

DTYPES = ('float32', 'bfloat16')
SOFTMAX_DTYPES = (*DTYPES, 'float16')
SCAN_DTYPES = (*DTYPES, 'complex64')


def check_options(name, options, function):
  known = ['kernel', *inspect.getfullargspec(function).kwonlyargs]
  for option in options:
    if option not in known:
      raise TypeError(f'{name} has no argument {option!r}: its options are '
                      f'{", ".join(known)}')


def check_asked(op, shape, dtype, needs, known):
  """Refuses a shape, dtype or need (not in `known`) that `op` never has."""
  axes = '(B, L, E)' if op in ('norm_project', 'scan') else '(B, L, H, Dh)'
  if not _is_shape(shape, axes.count(',') + 1):
    raise ValueError(f'shape must be {axes} of {op}, whole numbers above 0, '
                     f'got {shape!r}')
  dtypes = {'softmax': SOFTMAX_DTYPES, 'scan': SCAN_DTYPES}.get(op, DTYPES)
  try:
    name = jnp.dtype(dtype).name
  except TypeError:
    name = repr(dtype)
  if name not in dtypes:
    raise ValueError(f'dtype must be {" or ".join(dtypes)}, got {name}')
  for need in needs:
    if need not in known:
      raise ValueError(
          f'{op} has no need {need!r}: '
          + (f'it has {", ".join(known)}' if known else 'it has none'))


def _is_shape(shape, axes):
  try:
    return len(shape) == axes and not any(isinstance(n, float) or n < 1
                                          for n in shape)
  except TypeError:
    return False


def check_qkv(q, k, v, any_value_width=False):
  """Requires one shape [B, L, H, Dh] and dtype; v may have another width."""
  _check_arrays(q, k, v, DTYPES)
  for name, x in (('k', k), ('v', v)):
    n = 3 if any_value_width and name == 'v' else 4
    if jnp.shape(x)[:n] != jnp.shape(q)[:n]:
      raise ValueError(f'{name} must have the shape of q, {jnp.shape(q)}, got '
                       f'{jnp.shape(x)} (B, L, H, Dh)')


def check_keys_and_values(q, k, v):
  """Requires q [B, L, H, Dh], k [B, S, G, Dh], v [B, S, G, Dv]; G divides H."""
  _check_arrays(q, k, v, SOFTMAX_DTYPES)
  b, _, h, d = jnp.shape(q)
  if (jnp.shape(k)[0], jnp.shape(k)[3]) != (b, d) or h % jnp.shape(k)[2]:
    raise ValueError('k must be [B, S, G, Dh] with B and Dh as in q and G a '
                     f'divisor of H in q (B, Dh, H = {b}, {d}, {h}), got '
                     f'{jnp.shape(k)}')
  if jnp.shape(v)[:3] != jnp.shape(k)[:3]:
    raise ValueError('v must be [B, S, G, Dv] with the B, S, G of k, '
                     f'{jnp.shape(k)[:3]}, got {jnp.shape(v)}')


def check_gated(q, k, v, log_decay):
  """Requires q, k [B, L, G, N] and v [B, L, H, E], where G divides H."""
  _check_arrays(q, k, v, DTYPES)
  shape, wide = jnp.shape(q), jnp.shape(v)
  if jnp.shape(k) != shape:
    raise ValueError(f'k must have the shape of q, {shape}, got {jnp.shape(k)}')
  if wide[:2] != shape[:2] or wide[2] % shape[2]:
    raise ValueError('v must be [B, L, H, E] with B and L as in q and H a '
                     f'multiple of G in q (B, L, G = {shape[:3]}), got '
                     f'{wide}')
  check_log_decay(log_decay, (*wide[:3], shape[3]))


def _check_arrays(q, k, v, dtypes):
  for name, x in (('q', q), ('k', k), ('v', v)):
    _check_array(name, x, '[B, L, H, Dh]', len(jnp.shape(x)) == 4, dtypes)
  for name, x in (('k', k), ('v', v)):
    if _dtype(x) != _dtype(q):
      raise ValueError(f'{name} must have the dtype of q, {_dtype(q)}, got '
                       f'{_dtype(x)}')


def _check_array(name, x, axes, fits, dtypes=DTYPES):
  shape = jnp.shape(x)
  if not fits or 0 in shape:
    raise ValueError(f'{name} must be a non-empty array {axes}, got shape '
                     f'{shape}')
  if _dtype(x) not in dtypes:
    raise ValueError(f'{name} must be {" or ".join(dtypes)}, got {_dtype(x)}')


def check_packed(qkv, bias):
  shape = jnp.shape(qkv)
  fits = len(shape) == 5 and shape[2] == 3
  _check_array('qkv', qkv, '[B, L, 3, H, Dh]', fits)
  if bias is not None:
    check_float32('bias', bias, shape[2:], '[3, H, Dh]')


def check_tokens(name, x):
  _check_array(name, x, '[B, L, E]', len(jnp.shape(x)) == 3)


def check_scanned(x, a):
  shape = jnp.shape(x)
  _check_array('x', x, '[B, L, E]', len(shape) == 3, SCAN_DTYPES)
  dtypes = (('complex64',) if _dtype(x) == 'complex64' else
            ('float32', _dtype(x)))
  if jnp.shape(a) not in (shape[2:], shape) or _dtype(a) not in dtypes:
    raise ValueError(
        f'`a` must have dtype {" or ".join(dict.fromkeys(dtypes))} and shape '
        f'[E] = {shape[2:]} or [B, L, E] = {shape}, got {_kind(a)}')


def check_mask(mask, k):
  shape = jnp.shape(k)[:2]
  if mask is not None:
    _require(mask, [shape], 'bool', f'mask must be bool [B, L] = {shape}')


def check_distances(bias, q, k):
  """Requires None or float32 [H, L + S - 1], and one head of k for each of q.
  """
  if bias is None:
    return
  length, heads = jnp.shape(q)[1:3]
  keys, groups = jnp.shape(k)[1:3]
  shape = (heads, length + keys - 1)
  _require(bias, [shape], 'float32',
           f'bias must be float32 [H, L + S - 1] = {shape}')
  if groups != heads:
    raise ValueError(f'bias needs as many heads of k as of q, {heads}, got '
                     f'{groups}')


def check_state(name, x, shape, dtype):
  """Requires a state of a scan: complex64 if `dtype` is complex, else float32.
  """
  wide = 'complex64' if jnp.dtype(dtype).kind == 'c' else 'float32'
  _require(x, [tuple(shape)], wide, f'{name} must be {wide} {tuple(shape)}')


def check_float32(name, x, shape, axes):
  """Requires float32 of `shape`, shown as `axes`."""
  _require(x, [tuple(shape)], 'float32',
           f'{name} must be float32 {axes} = {tuple(shape)}')


def check_like(name, x, q):
  _require(x, [jnp.shape(q)], _dtype(q),
           f'{name} must be {_dtype(q)} {jnp.shape(q)}, like q')


def check_log_decay(x, shape):
  """Requires float32 [B, L, H], or `shape` [B, L, H, N]."""
  _require(x, [shape[:3], shape], 'float32',
           f'log_decay must be float32 [B, L, H] = {shape[:3]} or '
           f'[B, L, H, N] = {shape}')


def check_segments(segment_ids, num_segments, shape):
  if segment_ids is None:
    if num_segments is not None:
      raise ValueError('num_segments needs segment_ids')
    return
  shape = tuple(shape[:2])
  _require(segment_ids, [shape], 'int32',
           f'segment_ids must be int32 [B, L] = {shape}')
  if not isinstance(num_segments, int) or num_segments < 1:
    raise ValueError('num_segments must be an int of 1 or more, the number of '
                     f'segments in a row, got {num_segments!r}')


def check_pair(name, x):
  if not isinstance(x, tuple | list) or len(x) != 2:
    raise ValueError(f'{name} must be a pair (S, z) for normalised linear '
                     f'attention, got {type(x).__name__}')


def check_number(name, value):
  """Returns `value` as a finite float; kernels compile the number in."""
  if isinstance(value, jax.core.Tracer):
    raise ValueError(f'{name} must be a number, not a traced value')
  try:
    value = float(value)
  except (TypeError, ValueError) as error:
    raise ValueError(f'{name} must be a number, got {value!r}') from error
  if not math.isfinite(value):
    raise ValueError(f'{name} must be finite, got {value}')
  return value


def check_rate(name, value):
  value = check_number(name, value)
  if not 0 <= value < 1:
    raise ValueError(f'{name} must be at least 0 and below 1, got {value}')
  return value


def check_slopes(slopes, num_heads):
  """Requires real numbers [H] and, if they are concrete, >= 0."""
  traced = isinstance(slopes, jax.core.Tracer)
  try:
    values = slopes if traced else np.asarray(slopes)
  except ValueError as error:
    raise ValueError(f'slopes must have shape [H]: {error}') from error
  if values.shape != (num_heads,):
    raise ValueError(f'slopes must have shape [H] = ({num_heads},), got '
                     f'{values.shape}')
  if not jnp.issubdtype(values.dtype, np.number) or jnp.iscomplexobj(values):
    raise ValueError(f'slopes must be real numbers, got {values.dtype}')
  if traced:
    return
  values = values.astype(np.float64)
  if not (np.isfinite(values).all() and (values >= 0).all()):
    raise ValueError(f'slopes must be finite and >= 0, got {values.tolist()}')


def _require(x, shapes, dtype, message):
  if jnp.shape(x) not in shapes or _dtype(x) != dtype:
    raise ValueError(f'{message}, got {_kind(x)}')


def _kind(x):
  return f'{_dtype(x)} {jnp.shape(x)}'


def _dtype(x):
  return str(getattr(x, 'dtype', type(x).__name__))
