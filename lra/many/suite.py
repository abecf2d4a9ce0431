"""Suites: tasks, models and a grid; the same search for every model.

Each line of a suite's file is a line of a sweep (`lra.many.sweep`) with a
task in the place of the config. A line `models=` names the models:

  models=transformer,lightning
  parity seeds=0-2 train.learning_rate=[0.001,0.003,0.01]

Fields with brackets are searched. The first seed trains every setting, and no
test split is read. The setting with the highest validation accuracy is chosen,
and only its runs, of all seeds, are tested. So a choice depends on the results
of the search alone: an interrupted suite resumes to the same choice.
"""

import codecs
import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Sequence

from absl import flags

from lra import models as known_models
from lra.core import files, paths
from lra.core.errors import UserError, choose
from lra.core.terminal import say
from lra.many import best, sweep
from lra.many.sweep import Entry
from lra.schema import grid, identity
from lra.schema.result import SEARCHED
from lra.schema.search import Search

_MAX_BYTES = 2**20
_FOLDER = pathlib.Path('configs', 'suites')
_MODELS = 'models='


@dataclasses.dataclass(frozen=True)
class Unit:
  """The runs of one model on one task.

  Attributes:
    model: name or config file of the model.
    task: the task, and its protocol if the suite names one.
    fields: the fields that are searched.
    settings: the runs of each setting, in the order of the grid; each has one
      run per seed, and the first seed is that of the search.
  """
  model: str
  task: str
  fields: tuple[str, ...]
  settings: tuple[tuple[Entry, ...], ...]

  @property
  def title(self) -> str:
    return f'{self.model} on {self.task}'

  @property
  def search(self) -> list[Entry]:
    """Returns the run of each setting that the search compares."""
    return [runs[0] for runs in self.settings]

  @property
  def total(self) -> int:
    """Returns the number of its runs: the search, and other seeds of one."""
    return len(self.settings) + len(self.settings[0]) - 1


@dataclasses.dataclass(frozen=True)
class Choice:
  """The setting that a search chose.

  Attributes:
    runs: its runs, one per seed; () if the loss of every setting was not
      finite.
    search: how it was chosen.
  """
  runs: tuple[Entry, ...]
  search: Search

  @property
  def score(self) -> float | None:
    """Returns the highest validation accuracy of the search."""
    return max((score for _, score in self.search.scores if score is not None),
               default=None)

  @property
  def setting(self) -> str:
    """Returns the chosen values, as text."""
    if not self.runs:
      return 'none: the loss of all was not finite'
    chosen = identity.flatten(self.runs[0].result()[0].config)
    return ' '.join(f'{name}={json.dumps(chosen[name])}'
                    for name in self.search.grid)


def choice(unit: Unit) -> Choice | None:
  """Returns the setting with the highest validation accuracy.

  Ties are decided by the lower validation loss, then by the order of the grid.
  No test score is looked at, though an earlier command may have made one.

  Returns:
    The choice; None if a run of the search has not ended.
  """
  results = [entry.result()[0] for entry in unit.search]
  if any(run is None or run.status not in SEARCHED for run in results):
    return None
  flat = [identity.flatten(run.config) for run in results]
  settings = [{name: values[name] for name in unit.fields} for values in flat]
  index, scores = dataclasses.astuple(best.of([[run] for run in results]))
  values = {name: [json.loads(text) for text in dict.fromkeys(
      json.dumps(setting[name]) for setting in settings)]
            for name in unit.fields}
  return Choice(
      () if index is None else unit.settings[index],
      Search(tried=len(settings), grid=values,
             chosen_by='validation accuracy', seed=results[0].seed,
             scores=list(zip(settings, scores, strict=True))))


def read(name: str, models: Sequence[str] = ()) -> list[Unit]:
  """Returns the models and tasks of a suite, task by task.

  Args:
    name: a name such as `state`, for configs/suites/state.txt, or a file.
    models: the models to take in place of those of the file.

  Raises:
    UserError: there is no such suite or model, a line names no task or no
      values to choose from, or some model does not have its fields.
  """
  path = _path(name)
  lines = _lines(path, name)
  models = models or next((line.split('=', 1)[1].split(',')
                           for _, line in lines
                           if line.startswith(_MODELS)), [])
  if not models:
    raise UserError(f'{path} names no models: give --models=transformer,...')
  for model in models:
    if not os.path.isfile(paths.config_file(model)):
      raise UserError(f'{path}: there is no model {model}: '
                      f'{choose(model, known_models.names())}')
    if models.count(model) > 1:
      raise UserError(f'{path}: {model} is named twice: name each model once.')
  asked = [(number, sweep.on_line(path, number, _asked, line))
           for number, line in lines if not line.startswith(_MODELS)]
  if not asked:
    raise UserError(f'{path} has no task: write lines such as '
                    'parity seeds=0-2 train.learning_rate=[0.001,0.01].')
  told = grid.check_count(
      len(models) * sum(one.runs for _, one in asked), str(path))
  if told:
    say(told)
  units = [sweep.on_line(path, number, _unit, one, model, number)
           for number, one in asked for model in models]
  _check_distinct(path, units)
  return units


def _path(name):
  if name.isidentifier():
    path = paths.found(_FOLDER / f'{name}.txt')
    if path.is_file():
      return path
    known = sorted(p.stem for p in (paths.PACKAGE / _FOLDER).glob('*.txt'))
    raise UserError(
        f'There is no suite or file {name}: {choose(name, known)}')
  return paths.found(name)


def _lines(path, name):
  """Returns [(number, line)] of the lines with words."""
  try:
    text = files.read(path, _MAX_BYTES).removeprefix(codecs.BOM_UTF8).decode()
  except (OSError, UnicodeDecodeError) as e:
    raise UserError(
        f'Cannot read the suite {name} ({getattr(e, "strerror", None) or e}): '
        'give a file like those of configs/suites/.') from e
  return [(number, line.strip()) for number, line in enumerate(
      text.splitlines(), 1) if line.partition('#')[0].strip()]


def _asked(line):
  """Returns the task, changes and seeds of a line."""
  asked = sweep.asked_by(line.encode())
  if not _searched(asked):
    raise UserError('it has no values to choose from: write several in '
                    'brackets, as in train.learning_rate=[0.001,0.01].')
  return asked


def _searched(asked):
  """Returns the names of the fields with values in brackets."""
  return tuple(change.partition('=')[0] for change in asked.changes
               if grid.values(change) != [change])


def _unit(asked, model, number):
  file = model if model.endswith('.py') else paths.config_said(model)
  try:
    entries = sweep.entries_of(
        asked._replace(config=f'{file}:{asked.config}'), number)
  except (flags.Error, ValueError, UserError) as e:
    raise UserError(f'{model} cannot take it: {e}') from e
  if json.loads(entries[0].repetition)[0].get('train.include_val'):
    raise UserError('it needs a validation split to choose by: leave out '
                    'train.include_val=True.')
  return Unit(model, asked.config, _searched(asked),
              tuple(map(tuple, sweep.by_config(entries))))


def _check_distinct(path, units):
  """Raises UserError if a run is named twice."""
  made = {}
  for entry in itertools.chain(*(runs for u in units for runs in u.settings)):
    if entry.folder in made:
      raise UserError(
          f'{path}, line {entry.line}: the run {entry.folder} is also on line '
          f'{made[entry.folder]}: name each value once.')
    made[entry.folder] = entry.line
