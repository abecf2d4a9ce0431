"""The records that can be shown, and those that are left out.

A record that is not sound, or contradicts another, is left out and named; it
is never the end of the others.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Collection

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
  runs, left_out = of_runs(folder)
  return [(name, protocols.compared(run)) for name, run in runs
          if _classifies(run)], left_out


def of_runs(folder: pathlib.Path, task_names: Collection[str] | None = None
            ) -> tuple[list[tuple[str, Result]], list[LeftOut]]:
  """The results under a folder.

  Args:
    folder: of all records.
    task_names: of these tasks only; None for all.

  Returns:
    As `of_classifiers`.
  """
  runs, left_out = _read(folder, result.read, task_names)
  keys = {path: key(run) for path, run in runs.items() if _classifies(run)}
  for find in (_repeated, _copied, _short):
    classified = {path: run for path, run in runs.items() if path in keys}
    for path, why in find(classified, folder, keys).items():
      left_out.append(LeftOut(_name(path, folder), why))
      del runs[path]
  return [(_name(path, folder), run) for path, run in runs.items()], left_out


def of_floors(folder: pathlib.Path) -> tuple[list[Floors], list[LeftOut]]:
  """The floors under a folder."""
  measured, left_out = _read(folder, floors.read)
  return list(measured.values()), left_out


def key(run: Result) -> tuple:
  """What the seeds of a row have in common; dtype=auto is what it came to."""
  experiment = {**identity.experiment(run.config), 'dtype': run.dtype}
  return (run.task, run.model, run.protocol, run.data_fingerprint,
          json.dumps(experiment, sort_keys=True))


def _classifies(run):
  return run.objective in result.CLASSIFIERS


def _read(directory, read, folders=None):
  """Every record under a folder, by path, and those that are none.

  Of these folders in it only, unless they are None.
  """
  records, left_out = {}, []
  found = (path for name in (('',) if folders is None else folders)
           for path in (directory / name).rglob('*.json'))
  for path in sorted(found, key=lambda p: p.as_posix()):
    if not path.name.startswith('.'):
      try:
        records[path] = read(path)
      except Unsound as error:
        left_out.append(LeftOut(_name(path, directory), error.why))
  return records, left_out


def _name(path, directory):
  return plain(f'{directory.name}/{path.relative_to(directory).as_posix()}')


def _repeated(runs, directory, keys):
  """Records of a run that has another one: {path: what is wrong}.

  A seed of a row is one run, however it was fitted to a machine. The one whose
  file has the name of its run is shown; of several the first by name, those
  first that have ended. No score decides, or repeating would raise them.
  """
  found = collections.defaultdict(list)
  for path, run in runs.items():
    found[keys[path], run.seed].append(path)
  wrong = {}
  for paths in found.values():
    shown = min(paths, key=lambda path: (
        path != directory / runs[path].record_path,
        not runs[path].finished, path.as_posix()))
    for path in paths:
      if path != shown:
        wrong[path] = _repeats(runs[path], runs[shown], _name(shown, directory))
  return wrong


def _repeats(run, shown, name):
  """How a run is the one that is shown, in a sentence."""
  differ = identity.differences(run.config, shown.config)
  if differ:
    return (f'it repeats the seed of {name}, which is shown, with another '
            f'{" and ".join(differ)}, which is no other row: delete one of '
            'them')
  agrees = 'the same' if run == shown else 'another'
  return (f'it is of the same run (config and seed) as {name}, which is shown '
          f'and says {agrees}: delete one of them')


def _copied(runs, directory, keys):
  """Records with all scores of another seed: {path: what is wrong}.

  Two seeds may give the same answers, but hardly with the same loss. The lowest
  seed is shown: which of them was made does not show, and it is the one that
  every row begins with.
  """
  found = collections.defaultdict(list)
  for path, run in sorted(runs.items(), key=lambda item: item[1].seed):
    if run.test is not None:
      found[keys[path], run.test.loss, str(run.test.confusion)].append(path)
  wrong = {}
  for paths in found.values():
    shown = []
    for path in paths:
      of = next((o for o in shown if _same_answers(runs[o], runs[path])), None)
      if of is None:
        shown.append(path)
      else:
        wrong[path] = (
            f'it has the loss and the answers of {_name(of, directory)}, which '
            f'is seed {runs[of].seed}, to the last digit: make the run again '
            'or delete it')
  return wrong


def _same_answers(a, b):
  """Whether nothing that was kept of single examples tells two runs apart."""
  both = {a.test.correct, b.test.correct}
  return len(both) == 1 or '' in both


def _short(runs, directory, keys):
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
