"""The records that can be shown, and those that are left out.

A record that is not sound, or contradicts another, is left out and named; it
is never the end of the others.
"""

import collections
import dataclasses
import json
import pathlib

from lra import identity
from lra.report import floors, protocols, result
from lra.report.floors import Floors
from lra.report.formats import plain
from lra.report.record import Unsound
from lra.report.result import Result


@dataclasses.dataclass(frozen=True)
class LeftOut:
  """A record that is not shown.

  Attributes:
    name: its file, seen from the folder of the results.
    why: what is wrong with it, or with which other it cannot agree.
  """
  name: str
  why: str


def of_classifiers(folder: pathlib.Path
                   ) -> tuple[list[tuple[str, Result]], list[LeftOut]]:
  """The results under a folder whose scores have an accuracy.

  Returns:
    Each result with its file, as in `LeftOut`, and what is left out.
  """
  runs, left_out = _read(folder, result.read)
  runs = {path: run for path, run in runs.items()
          if run.objective in result.CLASSIFIERS}
  for find in (_repeated, _short):
    for path, why in find(runs, folder).items():
      left_out.append(LeftOut(_name(path, folder), why))
      del runs[path]
  return [(_name(path, folder), protocols.compared(run))
          for path, run in runs.items()], left_out


def of_floors(folder: pathlib.Path) -> tuple[list[Floors], list[LeftOut]]:
  """The floors under a folder."""
  measured, left_out = _read(folder, floors.read)
  return list(measured.values()), left_out


def settings(run: Result) -> dict:
  """What tells configurations apart: {dotted field: value}."""
  return identity.flatten(identity.identity(run.config))


def key(run: Result) -> tuple:
  """What the seeds of a row have in common."""
  return (run.task, run.model, run.protocol, run.data_fingerprint,
          json.dumps(settings(run), sort_keys=True))


def _read(directory, read):
  """Every record under a folder, by path, and those that are none."""
  records, left_out = {}, []
  for path in sorted(directory.rglob('*.json'), key=lambda p: p.as_posix()):
    if not path.name.startswith('.'):
      try:
        records[path] = read(path)
      except Unsound as error:
        left_out.append(LeftOut(_name(path, directory), error.why))
  return records, left_out


def _name(path, directory):
  return plain(f'{directory.name}/{path.relative_to(directory).as_posix()}')


def _repeated(runs, directory):
  """Records of a run that has another one: {path: what is wrong}.

  The one whose file has the name of its run is shown.
  """
  found = collections.defaultdict(list)
  for path, run in runs.items():
    found[key(run), run.seed].append(path)
  wrong = {}
  for paths in found.values():
    shown = min(paths, key=lambda path: (
        path != directory / runs[path].record_path, path.as_posix()))
    for path in paths:
      if path != shown:
        agrees = 'the same' if runs[path] == runs[shown] else 'another'
        wrong[path] = (
            f'it is of the same run (config and seed) as '
            f'{_name(shown, directory)}, which is shown and says {agrees}: '
            'delete one of them')
  return wrong


def _short(runs, directory):
  """Records that miss test examples of their data: {path: what is wrong}.

  Every run on the same data must have been tested on as many. Most records
  decide how many there are; the larger number, where no more have either.
  """
  found = collections.defaultdict(list)
  for path, run in runs.items():
    if run.test is not None:
      found[run.task, run.data_fingerprint].append(path)
  wrong = {}
  for paths in found.values():
    totals = collections.Counter(runs[path].test.examples for path in paths)
    usual = max(totals, key=lambda total: (totals[total], total))
    for path in paths:
      total = runs[path].test.examples
      if total != usual:
        wrong[path] = (
            f'it counts {total} test examples but others {usual} on the same '
            'data: make the run again or delete it')
  return wrong
