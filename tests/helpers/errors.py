"""Errors of every kernel against float64, gradients included.

Kernels whose device is absent run in an interpreter.
"""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.kernels import dispatch
from tests.helpers import reference

FUNCTIONS = {'linear': kernels.linear_attention,
             'simpletron': kernels.simpletron_attention,
             'lightning': kernels.lightning_attention}
PACKED = {'linear': kernels.linear_attention_packed,
          'simpletron': kernels.simpletron_attention_packed,
          'lightning': kernels.lightning_attention_packed}
EVERY = {**FUNCTIONS, 'softmax': kernels.softmax_attention}
REFERENCES = {name: getattr(reference, name) for name in EVERY}
GRADIENTS = ('dq', 'dk', 'dv', 'dstate', 'dbias')
# Forms of a call. 'state' has an initial and a final state, as lightning
# attention always does. 'packed' has q, k, v in one array, and a bias gradient.
# 'segments' has several sequences in a row. '+silu', only for lightning
# attention, applies SiLU to q, k and v first.
FORMS = 'plain', 'state', 'packed', 'segments', 'packed+silu', 'segments+silu'
SEGMENTS = 3
SLOPES = (0.0, 1e-4, 8.0, 0.1, 0.5, 1.0)


@dataclasses.dataclass(frozen=True)
class Case:
  """Settings of random operands; masked tokens hold NaN, which must not leak.

  In softmax attention the mask covers keys only, and they must be finite.
  """
  length: int = 500
  heads: int = 4
  width: int = 64
  dtype: str = 'float32'
  mask: str = 'ragged'  # 'full', 'ragged' or 'empty' (one all-false row)
  seed: int = 0
  batch: int = 2
  form: str = 'plain'  # one of FORMS


def rms(x):
  return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64)))))


def relative_rms(got, want):
  """Returns rms(got - want) / rms(want); 0 if both are 0."""
  got, want = (np.asarray(x, np.float64) for x in (got, want))
  error, size = rms(got - want), rms(want)
  return error if error == 0 else error / size if size else np.inf


def bound(name, dtype):
  """Returns the relative RMS error allowed for 'out', 'state', 'dq', ..."""
  if dtype == 'float32':
    return 1e-5
  return 6e-3 if name in GRADIENTS else 4e-3


def operands(op, case):
  """Returns (q, k, v, do), keyword arguments, the final state's gradient.

  All arrays are numpy. The gradient is None without a state.
  """
  rng = np.random.default_rng(case.seed)
  b, length, h, d = case.batch, case.length, case.heads, case.width
  mask = np.ones((b, length), bool)
  if case.mask != 'full':
    mask[0] = rng.random(length) < 0.8
    mask[0, rng.integers(length)] = True
    mask[-1, -(-length // 2) :] = False
  if case.mask == 'empty':
    mask[-1] = False
  arrays = []
  for _ in range(4):
    x = rng.standard_normal((b, length, h, d))
    if op != 'softmax':
      x = np.where(mask[:, :, None, None], x, np.nan)
    arrays.append(x.astype(jnp.dtype(case.dtype)))
  named, dfinal = {'mask': mask}, None
  if case.form.endswith('+silu'):
    if op != 'lightning':
      raise NotImplementedError(f'{op} attention has no activation')
    named['activation'] = 'silu'
  if op == 'lightning':
    named['slopes'] = np.roll(SLOPES, case.seed)[:h].astype(np.float32)
  if op == 'lightning' or case.form == 'state':
    named['initial_state'], dfinal = (
        _state(op, rng.standard_normal((b, h, d, d))) for _ in range(2))
  return arrays, named, dfinal


def _state(op, sums):
  sums = sums.astype(np.float32)
  # Linear attention also has the normaliser's sums, which are positive.
  return (sums, np.abs(sums[..., 0])) if op == 'linear' else sums


def compiled(op, kernel, arrays, named, dfinal, form='plain'):
  """Returns a function without arguments: a kernel's float64 results by name.
  """
  do = arrays[3]
  keys = [key for key in named if key == 'initial_state']
  rest = {key: x for key, x in named.items() if key not in keys}
  static = {'return_state': True} if keys else {}
  function, operands = EVERY[op], arrays[:3]
  packed = form.startswith('packed')
  if packed:
    function = PACKED[op]
    h, d = arrays[0].shape[2:]
    operands = [np.stack(operands, axis=2), np.zeros((3, h, d), np.float32)]

  def attend(operands, state):
    if packed:
      operands, rest['bias'] = operands[:1], operands[1]
    more = dict(zip(keys, state, strict=True))
    return function(*operands, kernel=kernel, **rest, **more, **static)

  @jax.jit
  def both(do, dfinal, *args):
    out, pull = jax.vjp(attend, *args)
    return out, *pull(do if dfinal is None else (do, dfinal))

  given = do, dfinal, operands, [named[k] for k in keys]
  program = both.lower(*given).compile()

  def values():
    out, grads, dstate = program(*given)
    found = {'out': out}
    if keys:
      found = {'out': out[0], 'state': out[1], 'dstate': dstate[0]}
    if packed:
      found['dbias'] = grads[1]
      grads = [grads[0][:, :, i] for i in range(3)]
    found |= dict(zip(GRADIENTS, grads, strict=False))
    return {name: _flat(x) for name, x in found.items()}

  return values


def _flat(x):
  """Flattens to float64, with the parts of a state concatenated."""
  parts = [np.asarray(y, np.float64) for y in jax.tree.leaves(x)]
  if len(parts) == 1:
    return parts[0]
  return np.concatenate([y.ravel() for y in parts])


def expected(op, arrays, named, dfinal):
  """Returns the correct results, name -> float64 array."""
  named = dict(named)
  mask = np.asarray(named.pop('mask'))
  if dfinal is not None:
    named['dfinal'] = dfinal
  values = reference_of(op, arrays, mask, named)
  names = ('out', 'dq', 'dk', 'dv', 'state', 'dstate')
  found = {n: _flat(x) for n, x in zip(names, values, strict=False)}
  found['dbias'] = np.stack([found[n].sum((0, 1)) for n in GRADIENTS[:3]])
  return found


def reference_of(op, arrays, mask, named):
  """Returns the reference's results; applies SiLU and its derivative if asked.
  """
  named, (*operands, do) = dict(named), arrays
  if named.pop('activation', None) != 'silu':
    return REFERENCES[op](*operands, mask, do, **named)
  operands = [reference.zero_masked(x, mask) for x in operands]
  parts = [1 / (1 + np.exp(-x)) for x in operands]
  active = [x * part for x, part in zip(operands, parts, strict=True)]
  out, *rest = REFERENCES[op](*active, mask, do, **named)
  for i, (x, part) in enumerate(zip(operands, parts, strict=True)):
    rest[i] = rest[i] * part * (1 + x * (1 - part))
  return out, *rest


def expected_of_segments(op, arrays, named, ids):
  """Returns the correct results for segments `ids` [B, L]; see `operands`."""
  named = {k: x for k, x in named.items() if k != 'initial_state'}
  mask = np.asarray(named.pop('mask'))
  if op == 'simpletron':  # the scale uses the length of the whole row
    named['scale'] = arrays[0].shape[1] ** -0.5
  names = ('out', *GRADIENTS[:3])
  found = {name: np.zeros(arrays[0].shape) for name in names}
  for b in range(len(ids)):
    for segment in np.unique(ids[b]):
      at = ids[b] == segment
      parts = [x[b : b + 1, at] for x in arrays]
      values = reference_of(op, parts, mask[b : b + 1, at], named)
      for name, x in zip(names, values, strict=False):
        found[name][b, at] = x[0]
  return found


def measure(op, kernel, case):
  """Returns relative RMS errors by name; see `prepared`.

  'masked' is the largest value in a row that must be 0.
  """
  return prepared(op, kernel, case)()


def prepared(op, kernel, case):
  """Returns a function without arguments that computes `measure`.

  It compiles the kernel, and nothing runs on the device until the function is
  called. So several threads may call `prepared`. On an H200, XLA ended a
  process in which one thread ran a program while another compiled one.
  """
  arrays, named, dfinal = operands(op, case)
  segments = case.form.startswith('segments')
  if segments:
    ids = np.arange(case.length) * SEGMENTS // case.length
    ids = np.broadcast_to(ids, (case.batch, case.length)).astype(np.int32)
    named.pop('initial_state', None)
    more = {'segment_ids': ids, 'num_segments': SEGMENTS}
    values = compiled(op, kernel, arrays, named | more, None, case.form)
  else:
    values = compiled(op, kernel, arrays, named, dfinal, case.form)

  def found():
    if segments:
      want = expected_of_segments(op, arrays, named, ids)
    else:
      want = expected(op, arrays, named, dfinal)
    return _errors(op, case, values(), want, ~np.asarray(named['mask']))

  return found


def _errors(op, case, got, want, off):
  errors = {name: relative_rms(got[name], want[name]) for name in got}
  if op in ('linear', 'softmax') and case.length == 1:
    # With one token the output does not depend on q and k, except through eps
    # of linear attention. So dq and dk are near 0 and their error is absolute.
    for name in ('dq', 'dk'):
      errors[name] = rms(got[name] - want[name])
  zeros = ('dk', 'dv') if op == 'softmax' else ('out', 'dq', 'dk', 'dv')
  rows = [np.abs(got[name][off]) for name in zeros]
  errors['masked'] = max(x.max() if x.size else 0.0 for x in rows)
  return errors


def simulated(kernel, seed=0):
  """Returns a context in which a kernel runs: on its device or simulated."""
  platforms = {'pallas_tpu': 'tpu', 'splash': 'tpu', 'pallas_gpu': 'gpu',
               'pallas_triton': 'gpu'}
  platform = platforms.get(kernel)
  if platform in (None, jax.default_backend()):
    return contextlib.nullcontext()
  if kernel in ('splash', 'pallas_triton'):
    # The simulators cannot run splash under vmap, and have no Triton.
    return dispatch.target(platform, interpret=True)
  return dispatch.target(platform, interpret=_interpreter(platform, seed))


def _interpreter(platform, seed):
  if platform == 'tpu':
    from jax.experimental.pallas import tpu as pltpu
    return pltpu.InterpretParams(detect_races=True, random_seed=seed,
                                 uninitialized_memory='nan',
                                 out_of_bounds_reads='raise')
  try:
    from jax.experimental.pallas import mosaic_gpu as plgpu
    params = plgpu.InterpretGPUParams
  except (ImportError, AttributeError):
    # Private in jax 0.10.
    from jax._src.pallas.mosaic_gpu.interpret import params as private
    params = private.InterpretGPUParams
  return params()


def within(errors, dtype):
  """Returns whether all errors are within bounds and masked rows are 0."""
  limits = {name: bound(name, dtype) for name in errors}
  limits['masked'] = 0.0
  return all(errors[name] <= limits[name] for name in errors)
