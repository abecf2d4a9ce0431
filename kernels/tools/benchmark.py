"""Times of the kernels on the device that is here, as JSON and markdown.

  python -m kernels.tools.benchmark               times, on whatever device
  python -m kernels.tools.benchmark --json=FILE   ... also written down
  python -m kernels.tools.benchmark --table=FILE  the table of such a file
  python -m kernels.tools.benchmark --bytes       bytes moved, needs no device

Every row is measured in one process on the same operands: the median of five
rounds, which take turns between the kernels, of queued calls after a
warm-up. A copy kernel measured in the same run is what "% of floor" is of.
"""

import argparse
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from kernels import chunks, dispatch
from kernels.tools import device, errors, peers, timing, traffic
from kernels.tools.errors import FUNCTIONS

PASSES = ('fwd', 'fwd+bwd')
# Sizes that fill an accelerator, and sizes for a test of this script.
LARGE = {
  'tokens': 128 * 1024,
  'heads': 4,
  'lengths': (1024, 4096, 16384, 65536),
  'widths': (64, 128),
  'calls': 50,
  'copy': 512 * 2**20,
}
SMALL = {
  'tokens': 1024,
  'heads': 2,
  'lengths': (256, 1024),
  'widths': (32,),
  'calls': 3,
  'copy': 2**24,
}


def run(sizes, rounds=5):
  """The record of a run: device, calibration, rows."""
  calls = sizes['calls']
  record = {
    'device': jax.devices()[0].device_kind,
    'jax': jax.__version__,
    'dtype': 'bfloat16',
    'tokens': sizes['tokens'],
    'heads': sizes['heads'],
    'copy_bytes_per_s': timing.bandwidth(sizes['copy'], calls),
    'dispatch_us': 1e6 * timing.dispatch(calls),
    'rows': [],
  }
  for op in FUNCTIONS:
    for width in sizes['widths']:
      for length in sizes['lengths']:
        batch = sizes['tokens'] // length
        shape = (batch, length, sizes['heads'], width)
        record['rows'] += _rows(op, shape, calls, rounds, record)
  return record


def _rows(op, shape, calls, rounds, record):
  rng = np.random.default_rng(0)
  arrays = [jnp.asarray(rng.standard_normal(shape), 'bfloat16') for _ in 'qkvo']
  want = _expected(op, arrays)
  candidates, skipped = _candidates(op, shape, arrays)
  rows = []
  for direction in PASSES:
    timers, found = {}, {}
    for name, (make_timer, values) in candidates.items():
      try:
        timers[name] = make_timer(direction)
        found[name] = peers.relative(values(direction), want)
      except Exception as error:  # one that fails must not end the run
        skipped[name] = f'{type(error).__name__}: {error}'
        timers.pop(name, None)
    seconds = timing.medians(timers, calls, rounds)
    floor = traffic.floor(op, direction, shape) / record['copy_bytes_per_s']
    for name, time in seconds.items():
      others = [t for other, t in seconds.items() if other != name]
      xla = min(t for n, t in seconds.items() if n.startswith('xla'))
      rows.append({
        **_names(op, direction, shape, name),
        'us': 1e6 * time,
        'vs_xla': xla / time,
        'vs_best_other': min(others) / time if others else None,
        'percent_of_floor': 100 * floor / time,
        'error': found.get(name),
      })  # fmt: skip
    rows += [
      {**_names(op, direction, shape, name), 'skipped': reason}
      for name, reason in skipped.items()
    ]
  return rows


def _names(op, direction, shape, name):
  length, width = shape[1], shape[3]
  return {
    'op': op,
    'pass': direction,
    'L': length,
    'Dh': width,
    'kernel': name,
  }


def _candidates(op, shape, arrays):
  """name -> (direction -> timer, direction -> values), and who is skipped."""
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
  for name, make in peers.peers(op).items():
    try:
      forward, both = make(q, k, v, do)
      found[name] = _peer(forward, both)
    except peers.Missing as reason:
      skipped[name] = str(reason)
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

  runs = {
    'fwd': (jax.jit(attend), arrays[:3]),
    'fwd+bwd': (jax.jit(both), arrays),
  }

  def make_timer(direction):
    function, args = runs[direction]
    return timing.queued(function, *args)

  def values(direction):
    function, args = runs[direction]
    outs = function(*args)
    outs = outs if isinstance(outs, tuple) else (outs,)
    if heads_first:
      outs = [jnp.swapaxes(x, 1, 2) for x in outs]
    return [_sample(x) for x in outs]

  return make_timer, values


def _softmax(op, arrays, skipped):
  """cuDNN softmax attention: another function, so without an error."""
  name = 'cuDNN softmax'
  if jax.default_backend() != 'gpu':
    skipped[name] = 'needs an NVIDIA GPU'
    return {}

  def attend(q, k, v):
    return jax.nn.dot_product_attention(
      q, k, v, is_causal=op == 'lightning', implementation='cudnn'
    )

  make_timer, _ = _jax_rows(attend, arrays)
  return {name: (make_timer, lambda direction: [])}


def _peer(forward, both):
  def make_timer(direction):
    return peers.timer(forward if direction == 'fwd' else both)

  def values(direction):
    outs = [forward()] if direction == 'fwd' else both()
    return [_sample(peers.array(x[:1, :, -1:])) for x in outs]

  return make_timer, values


def _sample(x_BxLxHxDh):
  """The last head of the first sequence: what errors are measured on."""
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


def render(record):
  """The record as lines of markdown."""
  lines = [
    f'{record["device"]}, JAX {record["jax"]}, {record["dtype"]}, '
    f'B L = {record["tokens"]:,}, H = {record["heads"]}. Copy '
    f'{record["copy_bytes_per_s"] / 1e12:.3g} TB/s; a call costs the host '
    f'{record["dispatch_us"]:.0f} us.',
    '',
    '| op | pass | L | Dh | kernel | us | x XLA | x best other '
    '| % of floor | relative RMS |',
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  skipped = {}
  for row in record['rows']:
    if 'skipped' in row:
      skipped.setdefault((row['kernel'], row['skipped']))
      continue
    cells = [
      *(str(row[key]) for key in ('op', 'pass', 'L', 'Dh', 'kernel')),
      _number(row['us'], '.0f'),
      _number(row['vs_xla'], '.2f'),
      _number(row['vs_best_other'], '.2f'),
      _number(row['percent_of_floor'], '.0f'),
      _number(row['error'], '.1e'),
    ]
    lines.append('| ' + ' | '.join(cells) + ' |')
  lines += [''] + [f'Not run: {name}: {why}' for name, why in skipped]
  return lines


def _number(value, form):
  return '' if value is None else format(value, form)


def main(argv=None):
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
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
    device.skip_tpu()
    record = run(SMALL if jax.default_backend() == 'cpu' else LARGE)
  if args.json:
    args.json.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1) + '\n'
    args.json.write_text(text, encoding='utf-8')
  print('\n'.join(render(record)))


if __name__ == '__main__':
  main()
