"""Times the kernels on the local device, and counts the bytes they move.

  python -m tools benchmark --json=FILE   times; saved after each shape, resumes
  python -m tools benchmark --bytes       bytes moved, without the device

Every row is measured in one process on the same operands. It is the median of
five rounds of queued calls after a warm-up; in a round all kernels take turns.
"% of floor" compares the time with that of a copy kernel in the same run.
"""

import argparse
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from lra.core import files
from lra.kernels import chunks, dispatch
from tests.helpers import aot, errors
from tests.helpers.errors import FUNCTIONS
from tools import hlo, recorded, timing

PASSES = ('fwd', 'fwd+bwd')
# Sizes that fill an accelerator, and sizes for a test of this script. The most
# informative come first, because a machine may be lent for minutes only.
LARGE = {'tokens': 128 * 1024, 'heads': 4,
         'lengths': (4096, 16384, 1024, 65536), 'widths': (64, 128, 32),
         'calls': 50, 'copy': 512 * 2**20}
SMALL = {'tokens': 1024, 'heads': 2, 'lengths': (256, 1024), 'widths': (32,),
         'calls': 3, 'copy': 2**24}
# Tensors of [B, L, H, Dh] read and written: q, k, v, out; and q, k, v, gradient
# of out, and three gradients.
TENSORS = {'fwd': 4, 'bwd': 7, 'fwd+bwd': 11}
COUNTED = (32, 4096, 4)  # B, L, H of --bytes


def run(sizes, rounds=5, record=None, save=lambda record: None):
  """Returns the record of a run: device, speed of a copy, rows.

  The `sizes` have the form of `LARGE`; their `ops` may select operations. In a
  round the candidates take turns. An earlier record is resumed if it was made
  on this device. `save` is called with the record after each shape.
  """
  calls = sizes['calls']
  here = {'device': jax.devices()[0].device_kind, 'jax': jax.__version__,
          'dtype': 'bfloat16', 'tokens': sizes['tokens'],
          'heads': sizes['heads']}
  if any((record or {}).get(key) != value for key, value in here.items()):
    record = {**here, 'rows': [], 'copy_bytes_per_s': timing.bandwidth(
        sizes['copy'], calls)}
  done = {(r['op'], r['L'], r['Dh']) for r in record['rows']}
  for length in sizes['lengths']:
    for width in sizes['widths']:
      shape = (sizes['tokens'] // length, length, sizes['heads'], width)
      for op in sizes.get('ops', FUNCTIONS):
        if (op, length, width) not in done:
          record['rows'] += rows(
              op, shape, calls, rounds, record['copy_bytes_per_s'])
          save(record)
  return record


def rows(op, shape, calls, rounds, bytes_per_s):
  """Returns times and errors of the kernels of an operation at [B, L, H, Dh].

  `bytes_per_s` is the speed of a copy on this device.
  """
  rng = np.random.default_rng(0)
  arrays = [jnp.asarray(rng.standard_normal(shape), 'bfloat16') for _ in 'qkvo']
  named = {'op': op, 'L': shape[1], 'Dh': shape[3]}
  want, found = _expected(op, arrays), []
  for direction in PASSES:
    made = dict(timing.finished(
        lambda name, direction=direction: _program(op, name, direction, arrays),
        [*dispatch.OPS[op], *['cudnn softmax'] * (
            jax.default_backend() == 'gpu')]))
    timers, error = {}, {}
    for name, candidate in made.items():
      if isinstance(candidate, str):
        found.append({**named, 'pass': direction, 'kernel': name,
                      'skipped': candidate})
        continue
      timers[name] = timing.queued(*candidate)
      # Softmax attention is another function than `op`, so it has no error.
      error[name] = None if name == 'cudnn softmax' else _error(
          candidate[0](*candidate[1:]), want)
    seconds = timing.medians(timers, calls, rounds)
    least = TENSORS[direction] * 2 * np.prod(shape) / bytes_per_s
    for name, time in seconds.items():
      others = [t for other, t in seconds.items() if other != name]
      found.append({
          **named, 'pass': direction, 'kernel': name, 'us': 1e6 * time,
          'vs_xla': seconds['xla'] / time if 'xla' in seconds else None,
          'vs_best_other': min(others) / time if others else None,
          'percent_of_floor': 100 * least / time, 'error': error[name]})
  return found


def _program(op, name, direction, arrays):
  """Returns (compiled program, *arguments), or the reason why there is none."""
  def attend(q, k, v):
    if name == 'cudnn softmax':
      return jax.nn.dot_product_attention(
          q, k, v, is_causal=op == 'lightning', implementation='cudnn')
    return FUNCTIONS[op](q, k, v, kernel=name)

  def both(q, k, v, do):
    out, pull = jax.vjp(attend, q, k, v)
    return out, *pull(do)

  function, given = (attend, arrays[:3]) if direction == 'fwd' else (
      both, arrays)
  try:
    return jax.jit(function).lower(*given).compile(), *given
  except Exception as error:  # not for this device, or too large for it
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:300]


def _error(results, want):
  """Returns the largest relative RMS error of the result and the gradients."""
  got = results if isinstance(results, tuple) else (results,)
  return finite(max(
      errors.relative_rms(_sample(x), want[name])
      for name, x in zip(('out', *errors.GRADIENTS[:3]), got, strict=False)))


def finite(error):
  """Returns an error for JSON: the largest float in place of NaN and inf."""
  return float(error) if np.isfinite(error) else sys.float_info.max


def _sample(x_BxLxHxDh):
  """Returns the last head of the first sequence, used to measure errors."""
  return np.asarray(x_BxLxHxDh[:1, :, -1:], np.float64)


def _expected(op, arrays):
  q, k, v, do = map(_sample, arrays)
  mask = np.ones(q.shape[:2], bool)
  named = {}
  if op == 'lightning':
    named['slopes'] = chunks.default_slopes(arrays[0].shape[2])[-1:]
  values = errors.REFERENCES[op](q, k, v, mask, do, **named)
  return dict(zip(('out', *errors.GRADIENTS[:3]), values, strict=False))


def moved(targets):
  """Returns Markdown: the bytes that programs compiled for targets move."""
  batch, length, heads = COUNTED
  lines = [f'bfloat16, B {batch}, L {length:,}, H {heads}, a mask, operands as '
           '[B, L, H Dh]. T = bytes of one such tensor.', '',
           '| target | op | pass | Dh | kernel | moved / T | floor / T '
           '| operands + results / T | temporaries / T | launches |',
           '|---|---|---|---|---|---|---|---|---|---|']
  found, reasons = aot.available(targets)
  for target in found:
    for op in FUNCTIONS:
      for direction in aot.PASSES:
        for width in (64, 128):
          for name in (aot.own_kernel(target), 'xla'):
            lines.append(_moved(target, op, direction, width, name))
  return [*lines, '', *reasons]


def _moved(target, op, direction, width, name):
  shape = (*COUNTED, width)
  short = {'forward': 'fwd', 'backward': 'bwd'}[direction]
  start = f'| {target} | {op} | {short} | {width} | {name} | '
  try:
    program = aot.compiled(op, name, direction, target, shape, jnp.bfloat16)
  except NotImplementedError as reason:
    return start + f'not run: {reason} |'
  count, launched = hlo.count(program.as_text())
  memory = program.memory_analysis()
  tensor = 2 * int(np.prod(shape))
  ends = memory.argument_size_in_bytes + memory.output_size_in_bytes
  return start + ' | '.join([
      f'{count / tensor:.2f}', str(TENSORS[short]), f'{ends / tensor:.2f}',
      f'{memory.temp_size_in_bytes / tensor:.2f}', str(launched)]) + ' |'


def main(argv):
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--bytes', action='store_true')
  parser.add_argument('--targets', default='v5e,h200')
  parser.add_argument('--json', type=pathlib.Path)
  args = parser.parse_args(argv)
  if args.bytes:
    print('\n'.join(moved(args.targets.split(','))))
    return
  sizes = SMALL if jax.default_backend() == 'cpu' else LARGE
  before = json.loads(args.json.read_text(encoding='utf-8')) if (
      args.json and args.json.exists()) else None
  record = run(sizes, record=before, save=lambda record: args.json and (
      files.write_json(args.json, record)))
  print('\n'.join(recorded.times(record)))
