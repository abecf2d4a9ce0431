"""The form of a file of runs: models x tasks x settings x seeds, in TOML.

  protocol = "state"
  seeds = "0-2"

  [[runs]]
  models = ["transformer", "gla"]
  tasks = ["parity", "s3_words"]
  set.train.steps = 4000
  search.train.learning_rate = [0.001, 0.01]

Keys above the first table are defaults of all entries. `set` has the value of a
field, `grid` a list of values: each combination is trained. `search` is a list,
too, of which validation chooses one value, for each model and task. With
`search_share = 3` the runs that it compares have seed 0 and a third of the
steps; the chosen value is then trained with all seeds. In a text, `{task}`
stands for the task. With `[study]`, the file is an experiment of a
paper: it names `arms` instead of models, and claims compare two arms.
"""

import itertools
import math
import pathlib
import tomllib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pydantic

from lra.core import files, foreign, paths, tasks
from lra.core.errors import UserError, choose, meant
from lra.data_prep.baselines import names as baselines_of
from lra.schema import identity, seeds
from lra.schema.fields import FIELDS
from lra.schema.record import reason

FOLDER = pathlib.Path('configs', 'runs')
SUFFIX = '.toml'
BASELINE = 'baseline '
_MAX_BYTES = 2**22


class _Part(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(strict=True, frozen=True, extra='forbid')


class Claim(_Part):
  """A difference that a paper reports or expects.

  Attributes:
    arm: an arm, or the first cell of a measured row.
    than: the arm or the row that it is compared with, or `baseline` and the
      name of a baseline of the task.
    expected: how `arm` compares with `than` in the paper; '' if unknown.
    at: the columns that the claim is about; () means all. Of measured rows, the
      one column that is compared.
  """
  text: str
  arm: str
  than: str
  expected: Literal['higher', 'lower', 'equal', ''] = ''
  at: list[str] = []


class Study(_Part):
  """The experiment of a paper that the runs repeat.

  Attributes:
    source: the paper and its section.
    reported: the paper's own result, in words.
    differs: how the experiment differs from the paper's.
    axis: the field whose values are the columns of the table, which otherwise
      are the tasks.
    paper: {column: {arm: the paper's number}}; accuracies are in percent. For a
      measured column, the first cell of a row, or the first two (`a, b`).
    false_positives: the tasks, of two classes, that have a second column: the
      share of class 0 that was put into class 1.
    longer: {task: the lengths, see `lra.data.longer.split`, whose tests have
      columns of their own}.
    untested: sentences, each with a claim that cannot be tested here, and why.
    draws: a further figure, see `lra.many.study_figure`; '' for none.
  """
  title: str
  question: str
  source: str
  reported: str
  differs: str = ''
  axis: str = ''
  claims: list[Claim] = []
  paper: dict[str, dict[str, float]] = {}
  false_positives: list[str] = []
  longer: dict[str, list[str]] = {}
  untested: list[str] = []
  draws: Literal['', 'mixer_std', 'runtime'] = ''


class Entry(_Part):
  """Runs that have each of these models, tasks, values and seeds.

  Attributes:
    models: names such as `gla`, or config files.
    protocol, pretrain: options of the config, see `lra.configs.base`.
    seeds: as `--seeds` has them; a search uses the first.
    set, grid, search: {field: value, or list of values}; may be nested.
    search_share: the steps of a run are this many times those of the runs that
      its search compares, which have seed 0 if it is above 1.
    arms: {arm of a study: its model}, in the place of `models`.
  """
  models: list[str] = []
  tasks: list[str] = []
  protocol: str = ''
  pretrain: str = ''
  seeds: str = '0'
  set: dict[str, Any] = {}
  grid: dict[str, Any] = {}
  search: dict[str, Any] = {}
  search_share: Annotated[int, pydantic.Field(ge=1, le=100)] = 1
  arms: dict[str, str] = {}

  @property
  def searched(self) -> tuple[str, ...]:
    return tuple(identity.flatten(self.search))

  @property
  def lists(self) -> dict[str, list]:
    return identity.flatten(self.search or self.grid)

  @property
  def pairs(self) -> list[tuple[str, str]]:
    return list(self.arms.items()) or [('', model) for model in self.models]

  @property
  def count(self) -> int:
    runs = len(seeds.parse(self.seeds)) + (self.search_share > 1)
    return (len(self.pairs) * len(self.tasks) * runs
            * math.prod(map(len, self.lists.values())))

  def argument(self, task: str) -> str:
    options = {'protocol': self.protocol, 'pretrain': self.pretrain}
    return ','.join([task, *(
        f'{name}={value}' for name, value in options.items() if value)])

  def settings(self, task: str) -> Iterator[dict[str, str]]:
    """Yields {field: value as a flag has it} of each combination."""
    fixed = identity.flatten(self.set)
    for values in itertools.product(*self.lists.values()):
      found = fixed | dict(zip(self.lists, values, strict=True))
      yield {name: _text(name, value).replace('{task}', task)
             for name, value in found.items()}

  @pydantic.model_validator(mode='after')
  def _has_lists_to_vary(self):
    if self.grid and self.search:
      raise ValueError("it has 'grid' and 'search': leave out one of them")
    if self.search_share > 1 and not self.search:
      raise ValueError("it has 'search_share' without a search: leave it out")
    for name, values in self.lists.items():
      if not isinstance(values, list) or not values:
        raise ValueError(f'{name} should be a list of values, such as [1, 2]')
    names = [name for part in (self.set, self.search or self.grid)
             for name, _ in identity.pairs(part)]
    for name in names:
      if name == 'seed':
        raise ValueError('it sets seed: write seeds = "0-2"')
      if names.count(name) > 1:
        raise ValueError(f'it gives {name} twice: name it once')
    if why := identity.unscored(self.searched):
      raise ValueError(why)
    if self.search and identity.flatten(self.set).get('train.include_val'):
      raise ValueError('a search needs a validation split to choose by: leave '
                       'out train.include_val=True')
    return self


def _text(name, value):
  info = FIELDS.get(name)
  if info and info.annotation is str and not isinstance(value, str):
    raise UserError(f'{name}={value} should be a text: write it in quotes.')
  return value if isinstance(value, str) else repr(_tuple(value))


def _tuple(value):
  return tuple(map(_tuple, value)) if isinstance(value, list) else value


class File(Entry):
  """A file of runs; `read` gives entries the fields of the file that they lack.
  """
  runs: list[Entry] = []
  study: Study | None = None


def path_of(name: str) -> pathlib.Path:
  """Returns the path of a file: `mini` is that of configs/runs/mini.toml."""
  if not name.isidentifier() or pathlib.Path(name).is_file():
    return pathlib.Path(paths.found(paths.local(name)))
  path = paths.found(FOLDER / f'{name}{SUFFIX}')
  if not path.is_file():
    raise UserError(f'There is no file of runs {name}: {choose(name, names())}')
  return path


def names() -> list[str]:
  return sorted(p.stem for p in (paths.PACKAGE / FOLDER).glob(f'*{SUFFIX}'))


def read(path: pathlib.Path) -> File:
  close = None if path.exists() else meant(path.stem, names())
  with foreign.reading(path, (
      f'did you mean {FOLDER / close}{SUFFIX}?' if close else
      'give a file like those of configs/runs/')):
    values = tomllib.loads(files.read_text(path, _MAX_BYTES))
    try:
      made = File.model_validate(values)
      made = made.model_copy(update={'runs': [
          _whole(made, entry, i) for i, entry in enumerate(made.runs)]})
      if made.study:
        _check_claims(made)
    except pydantic.ValidationError as e:
      raise UserError(f'{path}: {_fault(e)}') from e
    except UserError as e:
      raise UserError(f'{path}: {e}') from e
  return made


def _fault(error):
  """Returns a sentence about the first fault of a file; it names the place."""
  found = error.errors(include_url=False)
  first = min(found, key=lambda one: one['type'] != 'extra_forbidden')
  *place, last = first['loc'] or ('',)
  if first['type'] == 'extra_forbidden':
    known = {(): File, ('study',): Study}.get(
        tuple(place), Claim if 'claims' in place else Entry)
    close = choose(last, known.model_fields)
    where = _where(place)
    return f'{where}{": " if where else ""}there is no {last!r}: {close}'
  if first['type'] == 'value_error':
    where = _where(first['loc'])
    return f'{where}{": " if where else ""}{first["ctx"]["error"]}.'
  return f'{reason(error)}: correct it.'


def _where(place):
  """Returns ('runs', 2) as 'runs 3', since people count from 1."""
  return ' '.join(str(x + 1) if isinstance(x, int) else x for x in place)


def _whole(file, entry, number):
  """Returns an entry with the fields of the file that it lacks."""
  where = _where(['runs', number])
  try:
    made = Entry.model_validate({
        **{name: getattr(file, name) for name in Entry.model_fields},
        **{name: getattr(entry, name) for name in entry.model_fields_set},
        'set': identity.flatten(file.set) | identity.flatten(entry.set)})
    seeds.parse(made.seeds)
  except pydantic.ValidationError as e:
    raise UserError(f'{where}: {_fault(e)}') from e
  except UserError as e:
    raise UserError(f'{where}: {e}') from e
  if bool(made.arms) != bool(file.study) or (made.arms and made.models):
    raise UserError(f"{where}: entries of a study, and no others, have 'arms' "
                    "instead of 'models'.")
  for name, some in (('models = ["gla"]', made.pairs),
                     ('tasks = ["text"]', made.tasks)):
    if not some:
      raise UserError(f'{where} has no {name.split()[0]}: write {name}.')
  for name, values in identity.flatten(made.grid).items() if file.study else ():
    if name != file.study.axis and len(values) > 1:
      raise UserError(f'{where} has several values of {name}, which is not the '
                      'axis: make an arm of each value.')
  return made


def _check_claims(file):
  """Checks that the axis is set, and that claims compare arms.

  A claim about other rows must name a column; the page looks for both.
  """
  study, entries = file.study, file.runs
  if study.axis and not any(
      study.axis in {*e.lists, *identity.flatten(e.set)} for e in entries):
    raise UserError(f'no entry sets the axis {study.axis}: correct it, or '
                    'leave it out.')
  arms = {arm for entry in entries for arm in entry.arms}
  baselines = {
      f'{BASELINE}{name}' for entry in entries for task in entry.tasks
      if task in tasks.TASKS for name in baselines_of(tasks.TASKS[task])}
  for claim in study.claims:
    about = f'the claim {claim.text!r}'
    if claim.arm == claim.than:
      raise UserError(
          f'{about} compares {claim.arm} with itself: name another arm.')
    if claim.at and claim.arm not in arms:
      continue
    for name, known in ((claim.arm, arms), (claim.than, arms | baselines)):
      if name not in known:
        raise UserError(f'{about} is about {name!r}: ' + (
            choose(name, sorted(known)) if known else
            'give a column `at` of measured rows.'))
