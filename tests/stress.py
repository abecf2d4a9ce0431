"""Kills commands at random moments and compares their outputs.

Usage: python -m tests.stress [--minutes=30] [--seed=0]
                              [--only=train,runs,prepare]

A round starts one command, sends it a signal at a random moment, starts it
again, and so on. Finally the command runs to its end. Except for measured times
and memory, its outputs must be those of an undisturbed run. The seed determines
the signals and their times, as fractions of the undisturbed duration. The exit
status is 1 if an output differs or a command ended in another way than it may.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lra import data_prep
from lra.core.errors import UserError
from tests.helpers import tiny
from tests.helpers.paths import ROOT

_RUN = (sys.executable, str(ROOT / 'run_lra.py'), '--results_dir=results',
        '--page=page.md')
_TINY = {'train.eval_batch_size': 100, 'train.log_every': 10,
         'train.checkpoint_minutes': 0.03}
_WORKS = {
    'train': (*_RUN, '--record', '--workdir=run', '--compile_cache=../cache',
              '--config=configs/simpletron.py:listops_mini', *tiny.flags(
                  **_TINY, **{'train.steps': 2000, 'train.eval_every': 250})),
    'runs': (*_RUN, 'runs', 'a.toml', '--record', '--compile_cache=../cache'),
    'prepare': (sys.executable, '-m', 'lra.data_prep', '--task=listops_mini',
                '--data_dir=data')}
_ACTIONS = ('KILL', 'KILL', 'TERM', 'INT', 'INT INT', 'HUP', 'STOP CONT')
# Exit codes of a signal that arrives before the command's first line runs. Only
# such a signal may raise Python's KeyboardInterrupt.
_UNHEARD = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)
_ALLOWED = {'KILL': (-signal.SIGKILL, 75), 'STOP CONT': (0, 75),
            'INT INT': (0, 75, 130, *_UNHEARD)}
_STUCK = 300  # seconds that a command may run after a signal


def _made(folder):
  """Makes the folder of a command."""
  folder.mkdir()
  (folder / 'configs').symlink_to(ROOT / 'configs')
  (folder / 'results').mkdir()
  shutil.copy(ROOT / 'lra/results/published.csv', folder / 'results')
  changes = tiny.table(**_TINY, **{'train.steps': 400, 'train.eval_every': 100})
  (folder / 'a.toml').write_text(
      '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
      f'seeds = "0-1"\nset = {changes}')
  return folder


def _start(folder, name):
  """Starts a command in a new session, so that it has its own group."""
  with open(folder / 'stderr', 'w') as errors:
    return subprocess.Popen(
        _WORKS[name], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
             'TFDS_DATA_DIR': str(folder.parent / 'tfds')})


def _outputs(folder, name):
  """Returns name -> value of each output, without measured numbers.

  In the text of a page of new runs, every number is replaced by '#'.
  """
  def timeless(value):
    if not isinstance(value, dict):
      return value
    return {k: timeless(v) for k, v in value.items()
            if not re.search(r'seconds$|per_s$|_bytes$', k)}

  if name == 'prepare':
    content = data_prep.read('listops_mini', folder / 'data')
    return {'fingerprint': content.fingerprint}
  found = {}
  for path in sorted(folder.rglob('*')):
    file = str(path.relative_to(folder))
    if path.name.startswith('.') or 'checkpoints' in file:
      continue
    if path.name == 'metrics.jsonl':
      found[file] = [timeless(json.loads(line))
                     for line in path.read_text().splitlines()]
    elif path.name in ('result.json', 'config.json') or (
        path.suffix == '.json' and 'results' in file):
      found[file] = timeless(json.loads(path.read_text()))
    elif path.suffix == '.md':
      found[file] = re.sub(r'[\d.,]+', '#', path.read_text())
  return found


def _act(process, action):
  """Sends the signals of `action`; SIGINT goes to the whole process group."""
  for name in action.split():
    try:
      (os.killpg if name == 'INT' else os.kill)(
          process.pid, signal.Signals[f'SIG{name}'])
    except ProcessLookupError:
      return
    if name != action:
      time.sleep(0.3)


def _complaint(process, action, errors):
  """Returns what is wrong with the end of a command, '' if nothing is."""
  try:
    code = process.wait(timeout=_STUCK)
  except subprocess.TimeoutExpired:
    process.kill()
    return f'hangs after {action}'
  text = errors.read_text(errors='replace')
  if text.rstrip().endswith('\nKeyboardInterrupt') and 'INT' in action:
    return ''
  if 'Traceback' in text:
    return f'a traceback after {action}: {text[-1500:]}'
  allowed = _ALLOWED.get(action, (0, 75, *_UNHEARD))
  return '' if code in allowed else f'exit code {code} after {action}'


def _round(folder, name, rng, seconds, expected):
  """Returns (the actions done, the problems found)."""
  done, wrong, process = [], [], None
  for _ in range(rng.randint(3, 6)):
    action, part = rng.choice(_ACTIONS), rng.uniform(0, 0.8)
    process = process or _start(folder, name)
    time.sleep(part * seconds)
    if process.poll() is None:
      _act(process, action)
      done.append(action)
      if action == 'STOP CONT':
        continue
    elif process.returncode == 0:
      break
    wrong.append(_complaint(process, action, folder / 'stderr'))
    process = None
  if process is not None:
    wrong.append(_complaint(process, 'STOP CONT', folder / 'stderr'))
  if code := _start(folder, name).wait():
    wrong.append(f'exit code {code} at last: '
                 + (folder / 'stderr').read_text()[-500:])
  try:
    got = _outputs(folder, name)
    wrong += [f'{file} differs' for file in sorted({*expected, *got})
              if expected.get(file) != got.get(file)]
  except (OSError, UserError, ValueError) as e:
    wrong.append(f'its outputs cannot be read: {e}')
  return done, [problem for problem in wrong if problem]


def main() -> int:
  parser = argparse.ArgumentParser(
      prog='python -m tests.stress', description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--minutes', type=float, default=30)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--only', default=','.join(_WORKS))
  args = parser.parse_args()
  signal.signal(signal.SIGINT, signal.default_int_handler)
  failed, seconds, expected = 0, {}, {}
  with tempfile.TemporaryDirectory(prefix='stress-') as place:
    place = pathlib.Path(place)
    (place / 'cache').mkdir()
    for name in args.only.split(','):
      for kind in ('warm', 'whole'):  # the first one fills the caches
        folder, begin = _made(place / f'{kind}-{name}'), time.monotonic()
        assert not _start(folder, name).wait(), (folder / 'stderr').read_text()
        seconds[name] = time.monotonic() - begin
      expected[name] = _outputs(folder, name)
    end = time.monotonic() + 60 * args.minutes
    for number in itertools.count():
      if time.monotonic() >= end:
        return int(failed > 0)
      name = args.only.split(',')[number % len(expected)]
      folder = _made(place / f'round-{number}')
      done, wrong = _round(
          folder, name, random.Random(f'{args.seed} {number}'), seconds[name],
          expected[name])
      failed += bool(wrong)
      print(f'round {number} {name}: {", ".join(done)}: '
            f'{"; ".join(wrong) or "identical"}', flush=True)
      shutil.rmtree(folder)


if __name__ == '__main__':
  sys.exit(main())
