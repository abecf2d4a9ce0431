"""Errors of every kernel against float64, gradients included.

  python -m kernels.tools.errors

prints relative RMS errors as a table and fails if one is over its bound.
Kernels without their device run in an interpreter.
"""

import argparse
import contextlib
import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

from kernels import dispatch
from kernels.lightning import reference as lightning
from kernels.lightning.api import lightning_attention
from kernels.linear import reference as linear
from kernels.linear.api import linear_attention
from kernels.simpletron import reference as simpletron
from kernels.simpletron.api import simpletron_attention
from kernels.softmax import reference as softmax
from kernels.softmax.api import softmax_attention
from kernels.tools.rms import relative_rms, rms

FUNCTIONS = {
  'linear': linear_attention,
  'simpletron': simpletron_attention,
  'lightning': lightning_attention,
}
EVERY = {**FUNCTIONS, 'softmax': softmax_attention}
REFERENCES = {
  'linear': linear.attention,
  'simpletron': simpletron.attention,
  'lightning': lightning.attention,
  'softmax': softmax.attention,
}
GRADIENTS = ('dq', 'dk', 'dv', 'dstate')
SLOPES = (0.0, 1e-4, 8.0, 0.1, 0.5, 1.0)


@dataclasses.dataclass(frozen=True)
class Case:
  """Random operands; masked tokens hold NaN, which must not leak.

  Of softmax attention they are keys, which must be finite, and no queries.
  """

  length: int = 500
  heads: int = 4
  width: int = 64
  dtype: str = 'float32'
  mask: str = 'ragged'  # 'full', 'ragged' or 'empty' (one all-false row)
  seed: int = 0
  batch: int = 2


def bound(name, dtype):
  """The relative RMS error allowed for 'out', 'state', 'dq', ..."""
  if dtype == 'float32':
    return 1e-5
  return 6e-3 if name in GRADIENTS else 4e-3


def operands(op, case):
  """Arrays (q, k, v, do), keyword arrays, and the gradient of the state."""
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
    arrays.append(jnp.asarray(x, case.dtype))
  named, dfinal = {'mask': jnp.asarray(mask)}, None
  if op == 'lightning':
    state = rng.standard_normal((2, b, h, d, d)).astype(np.float32)
    named['slopes'] = jnp.asarray(np.roll(SLOPES, case.seed)[:h], jnp.float32)
    named['initial_state'] = jnp.asarray(state[0])
    dfinal = jnp.asarray(state[1])
  return arrays, named, dfinal


def run(op, kernel, arrays, named, dfinal):
  """name -> float64 array: what a kernel computes."""
  q, k, v, do = arrays
  keys = [key for key in named if key == 'initial_state']
  rest = {key: x for key, x in named.items() if key not in keys}
  static = {'return_state': True} if op == 'lightning' else {}

  def attend(q, k, v, *state):
    more = dict(zip(keys, state, strict=True))
    return EVERY[op](q, k, v, kernel=kernel, **rest, **more, **static)

  @jax.jit
  def both(do, dfinal, *args):
    out, pull = jax.vjp(attend, *args)
    return out, pull(do if dfinal is None else (do, dfinal))

  out, grads = both(do, dfinal, q, k, v, *(named[key] for key in keys))
  out = out if isinstance(out, tuple) else (out,)
  names = ['out', 'state'][: len(out)] + list(GRADIENTS[: len(grads)])
  values = (np.asarray(x, np.float64) for x in (*out, *grads))
  return dict(zip(names, values, strict=True))


def expected(op, arrays, named, dfinal):
  """name -> float64 array: what it should compute."""
  named = dict(named)
  mask = np.asarray(named.pop('mask'))
  q, k, v, do = arrays
  if op == 'lightning':
    named['dfinal'] = dfinal
  values = REFERENCES[op](q, k, v, mask, do, **named)
  names = ('out', 'dq', 'dk', 'dv', 'state', 'dstate')
  return dict(zip(names, values, strict=False))


def measure(op, kernel, case):
  """Relative RMS errors by name; 'masked' is the largest value in a row that
  must be 0. Runs inside whatever `kernels.target` is entered.
  """
  arrays, named, dfinal = operands(op, case)
  got = run(op, kernel, arrays, named, dfinal)
  want = expected(op, arrays, named, dfinal)
  errors = {name: relative_rms(got[name], want[name]) for name in got}
  if op in ('linear', 'softmax') and case.length == 1:
    # One token attends to itself alone: nothing depends on q and k but for
    # eps of linear, and the error is of the terms that cancel.
    for name in ('dq', 'dk'):
      errors[name] = rms(got[name] - want[name])
  off = ~np.asarray(named['mask'])
  zeros = ('dk', 'dv') if op == 'softmax' else ('out', 'dq', 'dk', 'dv')
  rows = [np.abs(got[name][off]) for name in zeros]
  errors['masked'] = max(x.max() if x.size else 0.0 for x in rows)
  return errors


def simulated(kernel, seed=0):
  """Context in which a kernel runs here: its device, or simulated."""
  platforms = {'pallas_tpu': 'tpu', 'pallas_gpu': 'gpu', 'splash': 'tpu'}
  platform = platforms.get(kernel)
  if platform in (None, jax.default_backend()):
    return contextlib.nullcontext()
  if kernel == 'splash':
    # The simulator does not take its kernels under vmap.
    return dispatch.target(platform, interpret=True)
  return dispatch.target(platform, interpret=_interpreter(platform, seed))


def _interpreter(platform, seed):
  if platform == 'tpu':
    from jax.experimental.pallas import tpu as pltpu

    return pltpu.InterpretParams(
      detect_races=True,
      random_seed=seed,
      uninitialized_memory='nan',
      out_of_bounds_reads='raise',
    )
  try:
    from jax.experimental.pallas import mosaic_gpu as plgpu

    params = plgpu.InterpretGPUParams
  except (ImportError, AttributeError):
    # Not public in jax 0.10.
    from jax._src.pallas.mosaic_gpu.interpret import params as private

    params = private.InterpretGPUParams
  return params()


def table(cases, kernels=None):
  """Markdown lines of the errors, and whether all are within bounds.

  Args:
    cases: what to measure.
    kernels: names of kernels; all by default.
  """
  names = ('out', 'state', *GRADIENTS, 'masked')
  lines = [
    '| op | dtype | kernel | ' + ' | '.join(names) + ' | bound |',
    '|' + '---|' * (len(names) + 4),
  ]
  good = True
  for op in EVERY:
    for case in cases:
      for kernel in dispatch.OPS[op]:
        if kernels and kernel not in kernels:
          continue
        start = f'| {op} | {case.dtype} | {kernel} | '
        try:
          with simulated(kernel):
            errors = measure(op, kernel, case)
        except NotImplementedError as reason:
          lines.append(start + f'not run: {reason} |')
          continue
        good &= within(errors, case.dtype)
        cells = (f'{errors[n]:.1e}' if n in errors else '' for n in names)
        out, dq = bound('out', case.dtype), bound('dq', case.dtype)
        limits = f'{out:.0e} / {dq:.0e}'
        lines.append(start + ' | '.join(cells) + f' | {limits} |')
  return lines, good


def within(errors, dtype):
  """Whether every error is within its bound and masked rows are 0."""
  limits = {name: bound(name, dtype) for name in errors}
  limits['masked'] = 0.0
  return all(errors[name] <= limits[name] for name in errors)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--length', type=int, default=Case.length)
  parser.add_argument('--heads', type=int, default=Case.heads)
  parser.add_argument('--width', type=int, default=Case.width)
  parser.add_argument('--kernels', help='names, by commas; all by default')
  args = parser.parse_args()
  shape = {n: getattr(args, n) for n in ('length', 'heads', 'width')}
  cases = [Case(dtype=d, **shape) for d in ('float32', 'bfloat16')]
  lines, good = table(cases, args.kernels and args.kernels.split(','))
  print(f'Relative RMS errors against float64, {shape}, device '
        f'{jax.default_backend()}', end='\n\n')  # fmt: skip
  print('\n'.join(lines))
  sys.exit(0 if good else 1)


if __name__ == '__main__':
  main()
