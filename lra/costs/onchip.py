"""All that is to be known of the kernels once there is a chip, as one JSON.

  python -m lra.costs --onchip=kernels/results/h200.json

runs on the device that is here, stage by stage, and writes the file after
each, so that a machine that is lent for minutes leaves what it had time for;
`--stages=layers` runs one of them again and keeps the others.
"""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import kernels
from kernels.tools import benchmark, errors, timing
from kernels.tools.errors import Case
from lra import files, machine, models
from lra.costs import layers
from lra.terminal import say

STAGES = ('errors', 'races', 'kernels', 'layers')
PACKAGES = ('jax', 'jaxlib', 'jax-cuda13-plugin', 'libtpu',
            'flash-linear-attention', 'torch')
# compute-sanitizer's tools, and how each counts what it found.
SANITIZERS = {'racecheck': r'RACECHECK SUMMARY: (\d+) hazard',
              'memcheck': r'ERROR SUMMARY: (\d+) error',
              'synccheck': r'ERROR SUMMARY: (\d+) error'}
LARGE = {
    'errors': [Case(length, 4, width, dtype, mask, seed)
               for seed, (length, mask) in enumerate(
                   ((1000, 'ragged'), (65, 'empty'), (4096, 'full')))
               for width in (32, 64, 128, 256)
               for dtype in ('float32', 'bfloat16')] + [
                   Case(1000, 4, 64, dtype, 'ragged', form=form)
                   for dtype in ('float32', 'bfloat16')
                   for form in errors.FORMS[1:]],
    'kernels': {**benchmark.LARGE, 'widths': (32, 64, 128)},
    'layers': {'batch': 32, 'length': 4096, 'heads': layers.HEADS,
               'calls': 30},
}
# For a processor: that the script runs from end to end.
SMALL = {
    'errors': [Case(65, 2, 16, 'float32', 'ragged')],
    'kernels': benchmark.SMALL,
    'layers': {'batch': 1, 'length': 64, 'heads': ((2, 16),), 'calls': 2},
}


def run(path: pathlib.Path, stages=STAGES, sizes: dict | None = None) -> dict:
  """Runs stages and writes the record after each; returns it.

  Args:
    path: the JSON file; stages in it that are not run again are kept.
    stages: names out of `STAGES`.
    sizes: `LARGE` or `SMALL`; by default as the device is.

  A stage that fails leaves its error in the record, and the next one runs.
  """
  if sizes is None:
    sizes = SMALL if jax.default_backend() == 'cpu' else LARGE
  record = files.read_json(path) or {}
  record |= {'device': machine.device_name(), 'packages': _versions(),
             **machine.git_state()}
  for stage in stages:
    say(f'{stage} ...')
    start = time.monotonic()
    try:
      found = globals()[f'_{stage}'](sizes.get(stage))
    except Exception as e:  # one stage must not cost the others
      found = {'failed': f'{type(e).__name__}: {e}'}
    record[stage] = {**found, 'seconds': round(time.monotonic() - start, 1)}
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, record)
    say(f'{stage}: {record[stage].get("failed", "done")} '
        f'({record[stage]["seconds"]} s)')
  return record


def _versions():
  found = {}
  for name in PACKAGES:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found


def _errors(cases):
  """Relative RMS errors of every kernel that runs on this device."""
  rows = []
  for op in errors.EVERY:
    for case in cases:
      shape = case.batch, case.length, case.heads, case.width
      reasons = kernels.explain(op, shape, case.dtype)
      for kernel, reason in reasons.items():
        row = {'op': op, 'kernel': kernel, **vars(case)}
        if reason:
          rows.append({**row, 'skipped': reason})
          continue
        found = errors.measure(op, kernel, case)
        rows.append({**row, **{k: float(v) for k, v in found.items()},
                     'within': bool(errors.within(found, case.dtype))})
  measured = [row for row in rows if 'within' in row]
  return {'rows': rows, 'measured': len(measured),
          'within_bounds': sum(row['within'] for row in measured)}


def _races(_):
  """What compute-sanitizer says of the kernels, where it is installed."""
  program = sanitizer()
  if program is None:
    return {'skipped': 'compute-sanitizer is not installed'}
  own = [name for name in kernels.OPS['linear'] if name.startswith('pallas')]
  command = [sys.executable, '-m', 'kernels.tools.errors', '--length=300',
             '--heads=2', '--widths=128', f'--kernels={",".join(own)}']
  found = {}
  for tool, pattern in SANITIZERS.items():
    done = subprocess.run(
        [program, '--tool', tool, *command], capture_output=True, text=True,
        timeout=500)
    output = done.stdout + done.stderr
    count = re.search(pattern, output)
    found[tool] = {'found': int(count.group(1)) if count else None,
                   'exit': done.returncode, 'end': output[-2000:]}
  return found


def sanitizer() -> str | None:
  """The path of compute-sanitizer, of the system or of a wheel, or None."""
  places = pathlib.Path(sys.prefix).glob(
      'lib/python*/site-packages/nvidia/**/compute-sanitizer')
  wheels = [str(p) for p in places if p.is_file()]
  return shutil.which('compute-sanitizer') or next(iter(wheels), None)


def _kernels(sizes):
  """Times of the kernels beside XLA, cuDNN and other packages."""
  return benchmark.run(sizes)


def _layers(sizes):
  """Times of whole layers, by their own kernel and by plain XLA's."""
  speed = timing.bandwidth(
      benchmark.SMALL['copy'] if sizes is SMALL['layers'] else
      benchmark.LARGE['copy'], sizes['calls'])
  rows = []
  for name in layers.MODELS:
    for heads, head_width in sizes['heads']:
      for direction in layers.PASSES:
        rows += _layer(name, heads, head_width, direction, sizes, speed)
  return {'copy_bytes_per_s': speed, 'rows': rows}


def _layer(name, heads, head_width, direction, sizes, speed):
  batch, length = sizes['batch'], sizes['length']
  width = heads * head_width
  rng = np.random.default_rng(0)
  x, dy = (jnp.asarray(rng.standard_normal((batch, length, width)), 'bfloat16')
           for _ in range(2))
  mask = jnp.ones((batch, length), bool)
  timers, runs = {}, {}
  for kernel in ('auto', 'xla'):
    mixer = models.module(name).Mixer(
        num_heads=heads, qkv_width=width, kernel=kernel, dtype=jnp.bfloat16)
    params = mixer.init(jax.random.key(0), x, mask, train=False)
    function = layers.function(mixer, direction)
    given = (params, x, mask, dy) if direction == 'both' else (params, x, mask)
    runs[kernel] = mixer.kernel_for(length, width)
    timers[kernel] = timing.queued(jax.jit(function), *given)
  seconds = timing.medians(timers, sizes['calls'], 5)
  floor = layers.floor(name, direction, width, batch=batch, length=length)
  return [{'layer': name, 'pass': direction, 'H': heads, 'Dh': head_width,
           'B': batch, 'L': length, 'asked': kernel, 'kernel': runs[kernel],
           'us': 1e6 * time_, 'vs_xla': seconds['xla'] / time_,
           'percent_of_floor': 100 * floor / speed / time_}
          for kernel, time_ in seconds.items()]
