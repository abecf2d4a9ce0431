"""Times the kernels on the local device, as JSON and markdown.

  python -m tools benchmark               times, on any device
  python -m tools benchmark --json=FILE   ... saved after each shape;
                                                  resumes from FILE
  python -m tools benchmark --table=FILE  the table of such a file
  python -m tools benchmark --bytes       bytes moved, needs no device

Every row is measured in one process on the same operands. It is the median of
five rounds of queued calls after a warm-up; in a round all kernels take turns.
Our kernels of all operations at a shape are compiled before the first is timed.
"% of floor" compares the time with that of a copy kernel in the same run.
"""

import argparse
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from lra.kernels import chunks, dispatch
from tools import errors, recorded, timing, traffic
from tools.errors import FUNCTIONS

PASSES = ('fwd', 'fwd+bwd')
# Sizes that fill an accelerator, and sizes for a test of this script. The most
# informative come first, because a machine may be lent for minutes only.
LARGE = {'tokens': 128 * 1024, 'heads': 4,
         'lengths': (4096, 16384, 1024, 65536), 'widths': (64, 128, 32),
         'calls': 50, 'copy': 512 * 2**20}
SMALL = {'tokens': 1024, 'heads': 2, 'lengths': (256, 1024), 'widths': (32,),
         'calls': 3, 'copy': 2**24}


def run(sizes, rounds=5, record=None, save=lambda record: None):
  """Returns the record of a run: device, calibration, rows.

  Args:
    sizes: the sizes to measure, in the form of `LARGE`; `ops` and `kernels` may
      select operations and candidates.
    rounds: number of rounds, in which the candidates take turns.
    record: an earlier record, which is resumed if it was made on this device:
      shapes with rows in it are not measured again.
    save: called with the record after each shape.
  """
  calls = sizes['calls']
  here = {'device': jax.devices()[0].device_kind, 'jax': jax.__version__,
          'dtype': 'bfloat16', 'tokens': sizes['tokens'],
          'heads': sizes['heads']}
  if any((record or {}).get(key) != value for key, value in here.items()):
    record = {**here, **calibration(sizes), 'rows': []}
  done = {(r['op'], r['L'], r['Dh']) for r in record['rows']}
  for length in sizes['lengths']:
    for width in sizes['widths']:
      shape = (sizes['tokens'] // length, length, sizes['heads'], width)
      left = [op for op in sizes.get('ops', FUNCTIONS)
              if (op, length, width) not in done]
      made = {op: _comparison(op, shape, sizes.get('kernels')) for op in left}
      compile_all(made.values())
      for op in left:
        record['rows'] += made[op].rows(calls, rounds,
                                        record['copy_bytes_per_s'])
        save(record)
  return record


def calibration(sizes):
  """Measures the device's memory and the host, for the record."""
  return {'copy_bytes_per_s': timing.bandwidth(sizes['copy'], sizes['calls']),
          'dispatch_us': 1e6 * timing.dispatch(sizes['calls'])}


def _comparison(op, shape, names):
  try:
    return Comparison(op, shape, names)
  except Exception as error:  # too large for the device; others may fit
    return _Unmade(op, shape, _one_line(error))


class _Unmade:
  """Stands for a `Comparison` that failed; its rows give the reason."""

  ours = ()

  def __init__(self, op, shape, reason):
    self._rows = [{**_names(op, direction, shape, 'all'), 'skipped': reason}
                  for direction in PASSES]

  def rows(self, *_):
    return self._rows


def compile_all(comparisons):
  """Compiles our kernels of all comparisons; runs nothing else."""
  left = [(one, *which) for one in comparisons for which in one.ours]
  made = timing.finished(lambda each: each[0].make(*each[1:]), left)
  for (one, direction, name), candidate in made:
    one.add(direction, name, candidate)


class Comparison:
  """Kernels of one operation on the same operands, once they are compiled.

  Attributes:
    ours: (pass, name) of each candidate, which `compile_all` compiles.
    candidates: pass -> name -> (timer, function that returns values).
    skipped: pass -> name -> reason why it is not a candidate.
  """

  def __init__(self, op, shape, names=None):
    rng = np.random.default_rng(0)
    self._op, self._shape = op, shape
    self._arrays = [jnp.asarray(rng.standard_normal(shape), 'bfloat16')
                    for _ in 'qkvo']
    self._want = _expected(op, self._arrays)
    self._found, skipped = _candidates(op, shape, self._arrays)
    self.candidates = {direction: {} for direction in PASSES}
    self.skipped = {direction: dict(skipped) for direction in PASSES}
    self.ours = [
        (direction, name) for direction in PASSES for name in self._found
        if not names or name in names]

  def make(self, direction, name):
    """Returns the candidate, or the exception that it raised."""
    try:
      return self._found[name](direction)
    except Exception as error:
      return error

  def add(self, direction, name, candidate):
    """Adds the result of `make`."""
    if isinstance(candidate, Exception):
      self.skipped[direction][name] = _one_line(candidate)
    else:
      self.candidates[direction][name] = candidate

  def rows(self, calls, rounds, bytes_per_s):
    """Returns times and errors of the candidates that run.

    See `timing.medians` for `calls` and `rounds`. `bytes_per_s` is the speed of
    a copy on this device.
    """
    rows = []
    for direction in PASSES:
      timers, found = {}, {}
      skipped, made = self.skipped[direction], self.candidates[direction]
      for name in filter(made.__contains__, self._found):
        timer, values = made[name]
        try:
          got = values()
          timers[name] = timer
          found[name] = finite(_error(got, self._want)) if got else None
        except Exception as error:
          skipped[name] = _one_line(error)
      seconds = timing.medians(timers, calls, rounds)
      floor = traffic.floor(self._op, direction, self._shape) / bytes_per_s
      for name, time in seconds.items():
        others = [t for other, t in seconds.items() if other != name]
        xla = [t for n, t in seconds.items() if n.startswith('xla')]
        rows.append(
            {**self._names(direction, name), 'us': 1e6 * time,
             'vs_xla': min(xla) / time if xla else None,
             'vs_best_other': min(others) / time if others else None,
             'percent_of_floor': 100 * floor / time, 'error': found[name]})
      rows += [{**self._names(direction, name), 'skipped': reason}
               for name, reason in skipped.items()]
    return rows

  def _names(self, direction, kernel):
    return _names(self._op, direction, self._shape, kernel)


def _names(op, direction, shape, kernel):
  return {'op': op, 'pass': direction, 'L': shape[1], 'Dh': shape[3],
          'kernel': kernel}


def _error(got, want):
  """Returns the largest relative RMS error of the result and the gradients."""
  names = ('out', *errors.GRADIENTS[:3])
  return max(errors.relative_rms(x, want[name])
             for name, x in zip(names, got, strict=False))


def finite(error):
  """Returns an error for JSON: the largest float in place of NaN and inf."""
  return float(error) if np.isfinite(error) else sys.float_info.max


def _one_line(error):
  return ' '.join(f'{type(error).__name__}: {error}'.split())[:300]


def _candidates(op, shape, arrays):
  """Returns name -> direction -> (timer, values), and skipped candidates.

  A timer is a function of a number of calls; `values` returns numpy arrays.
  """
  q, k, v, do = arrays
  found, skipped = {}, {}
  for name in dispatch.OPS[op]:
    try:
      dispatch.resolve(op, name, shape, q.dtype)
      found[name] = _ours(op, name, arrays)
    except NotImplementedError as reason:
      skipped[name] = str(reason)
  found['xla [B,H,L,Dh]'] = _ours(op, 'xla', arrays, heads_first=True)
  found |= _softmax(op, arrays, skipped)
  return found, skipped


def _ours(op, name, arrays, heads_first=False):
  def attend(q, k, v):
    if heads_first:
      q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    out = FUNCTIONS[op](q, k, v, kernel=name)
    return jnp.swapaxes(out, 1, 2) if heads_first else out

  return _jax_rows(attend, arrays, heads_first)


def _jax_rows(attend, arrays, heads_first=False):
  if heads_first:
    arrays = [jnp.copy(jnp.swapaxes(x, 1, 2)) for x in arrays]

  def both(q, k, v, do):
    out, pull = jax.vjp(attend, q, k, v)
    return out, *pull(do)

  runs = {'fwd': (attend, arrays[:3]), 'fwd+bwd': (both, arrays)}

  def make(direction):
    function, args = runs[direction]
    program = jax.jit(function).lower(*args).compile()

    def values():
      outs = program(*args)
      outs = outs if isinstance(outs, tuple) else (outs,)
      if heads_first:
        outs = [jnp.swapaxes(x, 1, 2) for x in outs]
      return [_sample(x) for x in outs]

    return timing.queued(program, *args), values

  return make


def _softmax(op, arrays, skipped):
  """Returns cuDNN softmax attention as a candidate.

  It computes another function than `op`, so it has no error.
  """
  name = 'cuDNN softmax'
  if jax.default_backend() != 'gpu':
    skipped[name] = 'needs an NVIDIA GPU'
    return {}

  def attend(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=op == 'lightning',
                                        implementation='cudnn')

  make = _jax_rows(attend, arrays)
  return {name: lambda direction: (make(direction)[0], list)}


def _sample(x_BxLxHxDh):
  """Returns the last head of the first sequence, used to measure errors."""
  return np.asarray(x_BxLxHxDh[:1, :, -1:], np.float64)


def _expected(op, arrays):
  q, k, v, do = map(_sample, arrays)
  mask = np.ones(q.shape[:2], bool)
  named = {}
  if op == 'lightning':
    heads = arrays[0].shape[2]
    named['slopes'] = chunks.default_slopes(heads)[-1:]
  values = errors.REFERENCES[op](q, k, v, mask, do, **named)
  return dict(zip(('out', *errors.GRADIENTS[:3]), values, strict=False))


def _read(path):
  if path and path.exists():
    return json.loads(path.read_text(encoding='utf-8'))
  return None


def _saving(path):
  """Returns a function that writes a record to `path` and prints progress."""
  def save(record):
    last = record['rows'][-1]
    say = f'{last["op"]}, Dh {last["Dh"]}, L {last["L"]:,}: measured'
    print(say, file=sys.stderr, flush=True)
    if path:
      path.parent.mkdir(parents=True, exist_ok=True)
      fresh = path.with_name(f'.{path.name}.new')
      fresh.write_text(json.dumps(record, indent=1) + '\n', encoding='utf-8')
      fresh.replace(path)

  return save


def main(argv):
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--bytes', action='store_true')
  parser.add_argument('--targets', default='v5e,h200')
  parser.add_argument('--json', type=pathlib.Path)
  parser.add_argument('--table', type=pathlib.Path)
  args = parser.parse_args(argv)
  if args.bytes:
    print('\n'.join(traffic.table(args.targets.split(','))))
    return
  if args.table:
    record = json.loads(args.table.read_text(encoding='utf-8'))
  else:
    timing.skip_tpu()
    sizes = SMALL if jax.default_backend() == 'cpu' else LARGE
    record = run(sizes, record=_read(args.json), save=_saving(args.json))
  print('\n'.join(recorded.every_time(record)))
