"""Lists of runs: those of a file (`lra.schema.runs_file`), and their groups."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterable, Sequence

from lra.core import paths
from lra.core.errors import UserError
from lra.core.terminal import say
from lra.run import loader
from lra.schema import grid, identity, runs_file
from lra.schema import result as result_lib
from lra.schema import seeds as seeds_lib
from lra.schema.result import Result


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a list.

  Attributes:
    flags: flags of its command line: the config, its changes, the seed.
    folder: its run directory.
    entry: number of its entry in the file, from 1.
    repetition: see `identity.repetition`.
    arm: name of its arm in a study, else ''.
    searched: the fields of which validation chooses values; () for none.
    trial_of: of a shorter run that a search compares, the setting that is
      trained if it is chosen; else ().
  """
  flags: tuple[str, ...]
  folder: pathlib.Path
  entry: int = 0
  repetition: str = ''
  arm: str = ''
  searched: tuple[str, ...] = ()
  trial_of: tuple[str, ...] = ()

  setting = property(lambda self: self.flags[:-1])  # without the seed
  seed = property(lambda self: self.flags[-1].removeprefix('--config.seed='))
  config = property(lambda self: self.flags[0].removeprefix('--config='))
  title = property(lambda self: title(self.flags))

  def result(self) -> tuple[Result | None, str]:
    """Returns (its result or None, the error in the file or '')."""
    try:
      return result_lib.read_if_there(self.folder / 'result.json'), ''
    except UserError as e:
      return None, str(e)

  def status(self) -> str:
    """Returns `new`, `started`, `damaged`, or the status of its result."""
    result, problem = self.result()
    if result or problem:
      return result.status if result else 'damaged'
    return 'started' if (self.folder / 'config.json').exists() else 'new'


Setting = tuple[Run, ...]  # the runs of one setting, one for each seed


@dataclasses.dataclass(frozen=True)
class Unit:
  """The runs of one config and task, whose settings are compared.

  Validation chooses values of the `searched` fields: the first run of each
  setting is trained without a test, then all runs of the best one. If the first
  runs are shorter ones, the others are the `final` ones.
  """
  settings: tuple[Setting, ...]
  searched: tuple[str, ...] = ()

  title = property(lambda self: self.settings[0][0].config)
  runs = property(lambda self: list(itertools.chain(*self.settings)))
  # The runs that a search compares.
  search = property(lambda self: [runs[0] for runs in self.settings])

  def final(self, index: int) -> Setting:
    """Returns the runs of a setting that are tested if it is chosen."""
    return tuple(run for run in self.settings[index] if not run.trial_of)


def title(of: Iterable[str]) -> str:
  """Returns flags without their dashes."""
  return ' '.join(re.sub('^--config[=.]', '', flag) for flag in of)


def read(name: str, models: Sequence[str] = ()) -> list[Run]:
  """Returns the runs of a file, in order.

  The `models` take the place of those of the file.

  Raises:
    UserError: the file is wrong (see `runs_file.read`), names a run twice, or
      an entry makes no config; the message names the entry.
  """
  path = runs_file.path_of(name)
  file = runs_file.read(path)
  if not file.runs:
    raise UserError(f'{path} has no runs: ' + (
        'its numbers are measured, and board --studies writes its page.'
        if file.study else 'write [[runs]] with models and tasks.'))
  if models and file.study:
    raise UserError(f'{path} is a study, whose arms have models of their own: '
                    'leave out --models.')
  entries = [entry.model_copy(update={'models': list(models) or entry.models})
             for entry in file.runs]
  told = grid.check_count(sum(e.count for e in entries), str(path))
  if told:
    say(told)
  made = {}
  for number, entry in enumerate(entries, 1):
    for task, (arm, model) in itertools.product(entry.tasks, entry.pairs):
      try:
        found = _runs(entry, number, task, model, arm)
      except UserError as e:
        raise UserError(f'{path}, runs {number}, {model} on {task}: '
                        f'{" ".join(str(e).split())}') from e
      for run in found:
        if run.folder in made and not models:
          raise UserError(
              f'{path}, runs {number}: {run.title} is also in runs '
              f'{made[run.folder].entry}: remove one.')
        made.setdefault(run.folder, run)
  return list(made.values())


def _runs(entry, number, task, model, arm):
  from lra.run.experiment import resolve  # imports JAX
  file = model if model.endswith('.py') else paths.config_said(model)
  config = f'{file}:{entry.argument(task)}'
  made = []
  for values in entry.settings(task):
    setting = (f'--config={config}', *(
        f'--config.{name}={value}' for name, value in values.items()))
    found = [(setting, seed, ()) for seed in seeds_lib.parse(entry.seeds)]
    if entry.search_share > 1:
      found.insert(0, (_shorter(setting, entry.search_share), 0, setting))
    for flags, seed, trial_of in found:
      said = (*flags, f'--config.seed={seed}')
      run = resolve(loader.made_by(said), made_by=config)
      made.append(Run(
          said, run.folder, number, identity.repetition(run.config.to_dict()),
          arm, entry.searched, trial_of))
  return made


def _shorter(setting, share):
  """Returns the flags of a setting with 1 / `share` of its steps."""
  train = loader.made_by(setting).train
  steps = max(train.steps // share, 1)
  return (*setting, f'--config.train.steps={steps}',
          f'--config.train.warmup_steps={train.warmup_steps // share}',
          f'--config.train.eval_every={min(train.eval_every, steps)}')


def experiments(flags_of_runs: Iterable[Sequence[str]]) -> list:
  """Returns the experiment of each run, given by its flags."""
  from lra.run.experiment import resolve
  return [resolve(loader.made_by(said), made_by=said[0].partition('=')[2])
          for said in flags_of_runs]


def units(runs: Sequence[Run]) -> list[Unit]:
  """Groups runs by config file and task, then by setting.

  The settings of a search form a unit of their own. The arms of a study are
  not to be chosen from: each is a unit.
  """
  groups = {}
  for run in runs:
    key = ((run.entry, run.arm, run.config) if run.searched else
           run.setting if run.arm else run.config)
    groups.setdefault(key, {}).setdefault(
        run.trial_of or run.setting, []).append(run)
  return [Unit(tuple(map(tuple, found.values())),
               next(iter(found.values()))[0].searched)
          for found in groups.values()]


def part(runs: Sequence[Run], text: str) -> list[Run]:
  """Returns every n-th setting from the i-th on, with all its seeds.

  The settings of a search are not divided.

  Raises:
    UserError: `text` is not 'i/n', i from 1 to n.
  """
  found = re.fullmatch(r'(\d{1,9})/(\d{1,9})', text)
  i, n = map(int, found.groups()) if found else (0, 0)
  if not 1 <= i <= n:
    raise UserError(f'--part={text} is not possible: write 1/3, 2/3 and 3/3 '
                    'on three machines.')
  return [run for piece in pieces(runs)[i - 1::n] for run in piece]


def pieces(runs: Iterable[Run]) -> list[list[Run]]:
  """Returns the smallest parts that `part` makes."""
  return [list(group) for _, group in itertools.groupby(
      runs, lambda run: (run.entry, run.config) if run.searched else (
          run.setting))]
