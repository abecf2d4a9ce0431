"""The commands that are killed, and their outputs that are compared."""

import dataclasses
import hashlib
import json
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

from lra import data_prep
from lra.data_prep.content import fingerprint
from tests.helpers import tiny
from tests.helpers.paths import ROOT

_RUN = (sys.executable, str(ROOT / 'run_lra.py'), '--results_dir=results',
        '--page=page.md')
_TINY = {'train.eval_batch_size': 100, 'train.log_every': 10,
         'train.checkpoint_minutes': 0.03}
# Fields of measured times and memory, which differ between equal runs.
_MEASURED = re.compile(r'seconds$|per_s$|_bytes$')


@dataclasses.dataclass(frozen=True)
class Work:
  """A command that runs in a folder of its own.

  Attributes:
    name: name in the table.
    command: program and arguments; paths are relative to the folder.
    make: function that prepares the folder; it also gets the folder that all
      commands share.
    outputs: function that reads the outputs in the folder, name -> value.
  """
  name: str
  command: tuple[str, ...]
  make: Callable[[pathlib.Path, pathlib.Path], None]
  outputs: Callable[[pathlib.Path], dict]


def works() -> list[Work]:
  """Returns the four commands."""
  flags = tiny.flags(**_TINY, **{
      'train.steps': 2000, 'train.eval_every': 250})
  return [
      Work('train', (
          *_RUN, '--record', '--workdir=run', '--compile_cache=../cache',
          '--config=configs/simpletron.py:listops_mini', *flags),
           _with_results, _of_runs),
      Work('runs', (
          *_RUN, 'runs', 'a.toml', '--record', '--compile_cache=../cache'),
           _with_runs, _of_runs),
      Work('prepare', (
          sys.executable, '-m', 'lra.data_prep', '--task=listops_mini',
          '--data_dir=data'), lambda folder, shared: None, _of_data),
      Work('publish', (*_RUN, '--leaderboard'), _with_records, _of_files),
  ]


def _with_results(folder, shared):
  (folder / 'configs').symlink_to(ROOT / 'configs')
  (folder / 'results').mkdir()
  shutil.copy(ROOT / 'lra/results/published.csv', folder / 'results')


def _with_runs(folder, shared):
  _with_results(folder, shared)
  changes = tiny.table(**_TINY, **{
      'train.steps': 400, 'train.eval_every': 100})
  (folder / 'a.toml').write_text(
      '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
      f'seeds = "0-1"\nset = {changes}')


def _with_records(folder, shared):
  shutil.copytree(ROOT / 'lra/results', folder / 'results')
  shutil.rmtree(folder / 'results/figures', ignore_errors=True)


def _of_files(folder):
  """Returns path -> SHA-256 of each file; skips hidden files and stderr."""
  return {
      str(path.relative_to(folder)): hashlib.sha256(
          path.read_bytes()).hexdigest()
      for path in sorted(folder.rglob('*'))
      if path.is_file() and not path.name.startswith(('.', 'stderr'))}


def _of_data(folder):
  """Returns the data's fingerprint, the file names and hashes of JSON files.

  The bytes of the other files may differ between equal data sets.
  """
  content = data_prep.read('listops_mini', folder / 'data')
  return {'fingerprint': fingerprint(content.splits),
          'files': sorted(_of_files(folder)),
          **{k: v for k, v in _of_files(folder).items() if 'json' in k}}


def _of_runs(folder):
  """Returns results, records and metrics without measured numbers.

  In the text of the page, every number is replaced by '#'.
  """
  found = {}
  for path in sorted(folder.rglob('*.json*')):
    name = str(path.relative_to(folder))
    if path.name in ('result.json', 'config.json') or 'results' in name:
      found[name] = _timeless(json.loads(path.read_text()))
    if path.name == 'metrics.jsonl':
      found[name] = [
          _timeless(json.loads(x)) for x in path.read_text().splitlines()]
  for path in [folder / 'page.md', *folder.rglob('curves.png')]:
    found[str(path.relative_to(folder))] = path.exists() and (
        path.suffix == '.png' or re.sub(r'[\d.,]+', '#', path.read_text()))
  return found


def _timeless(value):
  if isinstance(value, dict):
    return {k: _timeless(v) for k, v in value.items()
            if not _MEASURED.search(k)}
  return value
