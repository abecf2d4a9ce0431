"""Reads the records that can be shown, and lists those that are left out.

An invalid record, or one that contradicts another record, is left out. All
other records are shown.
"""

import collections
import functools
import json
import pathlib
from collections.abc import Collection
from typing import Any, NamedTuple

from lra.configs import base
from lra.core import tasks
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.data import baselines
from lra.data.baselines import Baselines
from lra.schema import identity, result, scores
from lra.schema.record import InvalidRecord
from lra.schema.result import Result


class LeftOut(NamedTuple):
  """A record that is not shown: its path from the results, and its fault."""
  name: str
  why: str


def read_classifiers(folder: pathlib.Path
                     ) -> tuple[list[tuple[str, Result]], list[LeftOut]]:
  """Reads like `read_runs` the results whose scores have an accuracy."""
  runs, left_out = read_runs(folder)
  return [(name, with_changes(run)) for name, run in runs
          if run.objective in scores.CLASSIFIERS], left_out


def read_runs(folder: pathlib.Path, task_names: Collection[str] | None = None
              ) -> tuple[list[tuple[str, Result]], list[LeftOut]]:
  """Reads the results of some or all tasks under a folder of records.

  Returns pairs (name as in `LeftOut`, `Result`), and the left-out records.
  """
  runs, left_out = _read(folder, result.read, task_names)
  left_out += _take_contradictions(runs, folder)
  return [(_name(path, folder), run) for path, run in runs.items()], left_out


def contradictions(folder: pathlib.Path, new: Result) -> list[LeftOut]:
  """Returns the records that a new run, in place of its own, leaves out."""
  path = folder / new.record_path
  others = _read(folder, result.read, [new.task])[0]
  others.pop(path, None)
  with_new = {**others, path: new}
  before = _take_contradictions(others, folder)
  return [one for one in _take_contradictions(with_new, folder)
          if one not in before]


def read_baselines(folder: pathlib.Path
                   ) -> tuple[list[Baselines], list[LeftOut]]:
  measured, left_out = _read(folder, baselines.read)
  return list(measured.values()), left_out


def with_changes(run: Result) -> Result:
  """Returns the run with the `changes` of its config from its protocol.

  The table shows the protocol's current values, so a run made under older ones
  has changes. The record decides on fields outside the protocol (a mixer's own
  arguments), and on all fields of a protocol that is unknown here.
  """
  settings = protocol_settings(run.task, run.protocol)
  others = {name: value for name, value in (run.changes or {}).items()
            if name not in settings}
  changes = others | identity.changes(run.config, settings)
  if changes == (run.changes or {}):
    return run
  return run.model_copy(update={'changes': changes})


@functools.cache
def protocol_settings(task: str, protocol: str) -> dict[str, Any]:
  """Returns {dotted field: value}, or {} if the protocol is unknown here."""
  try:
    return base.settings(task, protocol)
  except UserError:
    return {}


def key(run: Result) -> tuple:
  """Returns a key that all seeds of a row share.

  It has the dtype that ran, and the search that chose the settings, if any.
  """
  experiment = {**identity.experiment(run.config), 'dtype': run.dtype}
  return (run.task, run.model, run.protocol, run.data_fingerprint,
          json.dumps(experiment, sort_keys=True),
          run.search.digest if run.search else '')


def _read(directory, read, folders=None):
  """Reads some or all subfolders: returns {path: record}, and the faults."""
  records, left_out = {}, []
  found = (path for name in (('',) if folders is None else folders)
           for path in (directory / name).rglob('*.json'))
  for path in sorted(found, key=lambda p: p.as_posix()):
    if not path.name.startswith('.') and path.name != tasks.FILE:
      try:
        records[path] = read(path)
      except InvalidRecord as error:
        left_out.append(LeftOut(_name(path, directory), error.why))
  return records, left_out


def _name(path, directory):
  return plain(f'{directory.name}/{path.relative_to(directory).as_posix()}')


def _take_contradictions(runs, folder):
  """Removes the runs that contradict others; returns them."""
  keys = {path: key(run) for path, run in runs.items()
          if run.objective in scores.CLASSIFIERS}
  left_out = []
  for find in (_repeated, _copied, _short):
    known = {path: run for path, run in runs.items() if path in keys}
    for path, why in list(find(known, folder, keys)):
      left_out.append(LeftOut(_name(path, folder), why))
      del runs[path]
  return left_out


def _grouped(runs, key):
  """Groups paths by their key; leaves out paths with the key None."""
  groups = collections.defaultdict(list)
  for path, run in runs.items():
    groups[key(path, run)].append(path)
  groups.pop(None, None)
  return groups.values()


def _repeated(runs, directory, keys):
  """Yields records that repeat the run of another record, with their fault.

  The record whose file is named after the run is shown, else a finished one,
  else the first by name. Scores do not decide: the best of repeats is higher.
  """
  for paths in _grouped(runs, lambda path, run: (keys[path], run.seed)):
    shown = min(paths, key=lambda path: (
        path != directory / runs[path].record_path,
        not runs[path].finished, path.as_posix()))
    name = _name(shown, directory)
    for path in (path for path in paths if path != shown):
      differ = identity.differences(runs[path].config, runs[shown].config)
      if differ:
        yield path, (
            f'it repeats the seed of {name}, which is shown, with another '
            f'{" and ".join(differ)}, which is no other row: delete one of '
            'them')
      else:
        agrees = 'the same' if runs[path] == runs[shown] else 'other'
        yield path, (
            f'it is of the same run (config and seed) as {name}, which is '
            f'shown and has {agrees} content: delete one of them')


def _copied(runs, directory, keys):
  """Yields records that have all scores of another seed, with their fault.

  Two seeds may give the same answers, but hardly with the same loss. The lowest
  seed is shown, since nothing shows which record is the copy.
  """
  runs = dict(sorted(runs.items(), key=lambda item: item[1].seed))
  for paths in _grouped(runs, lambda path, run: run.test and (
      keys[path], run.test.loss, str(run.test.confusion))):
    shown = []
    for path in paths:
      # Answers are compared as far as both records keep them.
      first = next((one for one in shown if runs[path].test.correct in (
          runs[one].test.correct, '') or not runs[one].test.correct), None)
      if first is None:
        shown.append(path)
      else:
        yield path, (
            f'it has the loss and the answers of {_name(first, directory)}, '
            f'which is seed {runs[first].seed}, to the last digit: make the '
            'run again or delete it')


def _short(runs, directory, keys):
  """Yields records that miss test examples of their data, with their fault.

  The number of most runs on the same data is right; in a tie, the larger one.
  """
  for paths in _grouped(runs, lambda path, run: run.test and (
      run.task, run.data_fingerprint)):
    totals = collections.Counter(runs[path].test.examples for path in paths)
    usual = max(totals, key=lambda total: (totals[total], total))
    for path in paths:
      total = runs[path].test.examples
      if total != usual:
        yield path, (
            f'it counts {total} test examples but others {usual} on the same '
            'data: make the run again or delete it')
