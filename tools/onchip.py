"""Measures errors and times of the kernels on an accelerator.

  python -m tools onchip kernels/results/h200.json

This command runs on the device of this machine, stage by stage. It writes the
JSON file after each measurement, so that the results so far survive if the
machine is taken away. The same command resumes. `--stages=errors` runs one
stage again and keeps the others.
"""

import argparse
import importlib.metadata
import pathlib
import time

import jax

from lra import kernels
from lra.core import files, machine
from lra.core.errors import UserError, choose
from lra.core.terminal import say
from tests.helpers import errors
from tests.helpers.errors import Case
from tools import benchmark, timing

STAGES = ('errors', 'kernels')
PACKAGES = ('jax', 'jaxlib', 'jax-cuda13-plugin', 'libtpu',
            'flash-linear-attention', 'jax-linear-attention', 'torch')
GROUP = 4  # cases of `_errors` that are compiled together, per CPU core
LARGE = {
    'errors': [Case(length, 4, width, dtype, mask, seed)
               for seed, (length, mask) in enumerate(
                   ((1000, 'ragged'), (65, 'empty'), (4096, 'full')))
               for width in (32, 64, 128, 256)
               for dtype in ('float32', 'bfloat16')] + [
                   Case(1000, 4, 64, dtype, 'ragged', form=form)
                   for dtype in ('float32', 'bfloat16')
                   for form in errors.FORMS[1:]],
    'kernels': benchmark.LARGE,
}
# Sizes for a CPU, to check that the script runs from end to end.
SMALL = {
    'errors': [Case(65, 2, 16, 'float32', 'ragged')],
    'kernels': benchmark.SMALL,
}


def main(argv) -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('file', type=pathlib.Path)
  parser.add_argument('--stages', default=','.join(STAGES))
  args = parser.parse_args(argv)
  stages = args.stages.split(',')
  for stage in stages:
    if stage not in STAGES:
      raise UserError(f'--stages has no {stage!r}: {choose(stage, STAGES)}')
  run(args.file, stages)


def run(path: pathlib.Path, stages=STAGES, sizes: dict | None = None) -> dict:
  """Runs stages and writes the record after each measurement; returns it.

  A stage that fails leaves its error in the record, and the next one runs.
  Results of stages that are not run again are kept. An interrupted stage
  resumes if the commit and the packages are the same. The default `sizes` are
  `SMALL` on a CPU, else `LARGE`.
  """
  if sizes is None:
    sizes = SMALL if jax.default_backend() == 'cpu' else LARGE
  device = machine.device_name()
  record = files.read_json(path) or {'device': device}
  if record.get('device') != device:
    raise UserError(
        f'{path} was measured on {record.get("device")!r}, and this is '
        f'{device!r}: name another file.')
  made = {'packages': _versions(), 'xla_flags': machine.xla_flags(),
          **machine.git_state()}
  path.parent.mkdir(parents=True, exist_ok=True)
  for stage in stages:
    say(f'{stage} ...')
    start, before = time.monotonic(), dict(record.get(stage) or {})
    same = made == {key: before.pop(key, None) for key in made}
    before = before if before.pop('ended', None) and same else {}
    spent = before.pop('seconds', 0)

    def save(found, stage=stage, start=start, spent=spent, **more):
      seconds = spent + time.monotonic() - start
      record[stage] = {**found, **made, 'seconds': round(seconds, 1), **more}
      files.write_json(path, record)

    try:
      found = globals()[f'_{stage}'](
          sizes[stage], before, lambda found, save=save: save(
              found, ended='before its end'))
    except Exception as e:  # an error must not stop the other stages
      found = {'failed': f'{type(e).__name__}: {e}'}
    save(found)
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


def _errors(cases, before, save):
  """Measures relative RMS errors of every kernel that runs on this device."""
  cases = [(op, kernel, case, reason)
           for case in cases for op in errors.EVERY
           for kernel, reason in kernels.explain(
               op, (case.batch, case.length, case.heads, case.width),
               case.dtype).items()]
  order = [_which(_named(*case)) for case in cases]
  rows = [row for row in before.get('rows', []) if _which(row) in order]
  done = [_which(row) for row in rows]
  left = [case for case, which in zip(cases, order, strict=True)
          if which not in done]
  # A whole group is compiled before its first case runs.
  size = GROUP * machine.cpu_count()
  for start in range(0, len(left), size):
    group = left[start:start + size]
    made = dict(timing.finished(lambda case: _prepared(*case), group))
    for case in group:
      rows.append(_named(*case) | _error(made[case], case[2].dtype))
      save(_counted(rows))
  return _counted(sorted(rows, key=lambda row: order.index(_which(row))))


def _named(op, kernel, case, _):
  return {'op': op, 'kernel': kernel, **vars(case)}


def _which(row):
  names = 'op', 'kernel', *Case.__dataclass_fields__
  return [row.get(name) for name in names]


def _prepared(op, kernel, case, reason):
  """Returns a function that measures the errors, or fields with a reason."""
  if reason:
    return {'skipped': reason}
  return _or_why(lambda: errors.prepared(op, kernel, case))


def _error(prepared, dtype):
  if isinstance(prepared, dict):
    return prepared
  found = _or_why(prepared)
  if {'skipped', 'failed'} & set(found):
    return found
  return {**{k: benchmark.finite(v) for k, v in found.items()},
          'within': bool(errors.within(found, dtype))}


def _or_why(function):
  try:
    return function()
  except NotImplementedError as e:  # `explain` does not check the form
    return {'skipped': str(e)}
  except Exception as e:  # one kernel must not stop the others
    return {'failed': f'{type(e).__name__}: {e}'[:1000]}


def _counted(rows):
  measured = [row for row in rows if 'within' in row]
  return {'rows': rows, 'measured': len(measured),
          'within_bounds': sum(row['within'] for row in measured),
          'failures': sum('failed' in row for row in rows)}


def _kernels(sizes, before, save):
  """Times the kernels beside XLA, cuDNN and other packages."""
  return benchmark.run(sizes, record=before, save=save)
