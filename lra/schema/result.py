"""The result of a run: one config and one seed."""

import hashlib
import itertools
import json
import pathlib
import reprlib
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, Field

from lra.core import files, paths, tasks
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.schema import identity
from lra.schema.fields import Config as Groups
from lra.schema.record import (
  MOST,
  Amount,
  Count,
  Digest,
  File,
  Fraction,
  Length,
  Name,
  Record,
  TaskName,
  Text,
  field,
  read_record,
  reason,
)
from lra.schema.scores import (
  CLASSIFICATION,
  CLASSIFIERS,
  ClassificationScores,
  LongerScores,
  Scores,
)

# A run with one of these statuses is not continued.
FINISHED = ('ok', 'diverged')
# A search is complete if each of its runs has one of these statuses.
SEARCHED = (*FINISHED, 'validated')
MOST_TRIED = 1000  # most settings of a search


def _plain(config):
  """Returns the config as JSON values: tuples become lists."""
  for name, info in Groups.model_fields.items():
    if hasattr(info.annotation, 'model_fields') and not isinstance(
        config.get(name, {}), dict):
      raise ValueError(f"its '{name}' is not an object")
  return json.loads(json.dumps(config, allow_nan=False))


Config = Annotated[dict[str, Any], AfterValidator(_plain)]
AtLeastOne = Annotated[int, Field(ge=1)]


class Search(Record):
  """The search that chose the settings of a run, without any test score."""
  tried: int = field('Number of settings that were tried.', ge=1, le=MOST_TRIED)
  grid: dict[Text, list[Any]] = field(
      'Field of the config -> the values that were tried; of a sampler, the '
      'values or the range to draw from.', min_length=1, max_length=MOST)
  chosen_by: Literal['validation accuracy']
  seed: Count = field('Seed of the runs that were compared.')
  scores: list[Annotated[tuple[dict[Text, Any], Fraction | None],
                         Field(strict=False)]] = field(
      'Pairs of a setting, {field: value}, and its validation accuracy; None '
      'if its loss was not finite, or if it was pruned.', max_length=MOST_TRIED)
  sampler: Literal['grid', 'tpe'] = field(
      'grid tries all values; tpe draws from them, see `lra.many.search`.',
      'grid')
  pruned: Count = field('Settings whose runs were stopped early.', 0)
  steps: Count | None = field(
      'Updates of the runs that were compared; None if the chosen run has no '
      'more.', None)
  seconds: Amount | None = field(
      'Time of these runs: training, validation and compiling.', None)

  @property
  def text(self) -> str:
    how = '' if self.sampler == 'grid' else (
        f' ({self.sampler.upper()}, {self.pruned} pruned)')
    return f'best of {self.tried}{how} by validation'

  @property
  def digest(self) -> str:
    text = json.dumps(self.model_dump(
        exclude_unset=True, exclude={'seconds'}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]

  @pydantic.model_validator(mode='after')
  def _has_a_score_of_each_setting(self):
    found = [setting for setting, _ in self.scores]
    if self.sampler != 'grid':
      if len(found) != self.tried or any(
          set(setting) != set(self.grid) for setting in found):
        raise ValueError(f"'tried' is {self.tried} but there are {len(found)} "
                         "scores, or one is not of the fields of 'grid'")
      if self.pruned > sum(score is None for _, score in self.scores):
        raise ValueError("'pruned' is more than the settings without a score")
      return self
    whole = [dict(zip(self.grid, values, strict=True))
             for values in itertools.product(*self.grid.values())]
    if len(self.scores) != self.tried or self.tried != len(whole):
      raise ValueError(f"'tried' is {self.tried} but there are "
                       f'{len(self.scores)} scores and a grid of {len(whole)}')
    if any(setting not in found for setting in whole):
      raise ValueError("'scores' lacks a setting of the grid")
    return self

  def chose(self, config: dict) -> bool:
    flat = identity.flatten(config)
    mine = {name: flat.get(name) for name in self.grid}
    known = [score for _, score in self.scores if score is not None]
    return bool(known) and [mine, max(known)] in [
        [setting, score] for setting, score in self.scores]


class MixerStd(Record):
  """Standard deviations of the mixers' outputs; None if not finite."""
  step: Count
  blocks: Annotated[list[Amount | None], Field(max_length=MOST_TRIED)]


class Result(File):
  """One run: one config and one seed.

  A field without a meaning has the meaning of its name. A default describes
  records of earlier versions.
  """
  status: Literal['ok', 'diverged', 'oom', 'stopped', 'validated'] = field(
      'diverged: the loss was not finite; oom: out of memory; stopped: the '
      'same command continues the run; validated: trained, but the test split '
      'was not read, which the same command without --notest does.')
  objective: Text = field(
      'Name of the objective, which decides the scores.', CLASSIFICATION)
  task: TaskName
  model: Name
  protocol: Name
  seed: Count
  steps: Count = field('Updates made.')
  best_step: Count | None = field('Step of the tested parameters, if any.')
  learnt_step: Count | None = field(
      'The first step whose accuracy on the validation split was 95% or more.',
      None)
  guessing_step: Count | None = field(
      'The step at which the training loss had been that of guessing for a '
      'tenth of all steps.', None)
  val: Scores | None = field(
      'Scores of the tested parameters on the validation split.')
  test: Scores | None = field("Never None if the status is 'ok'.")
  longer: dict[Length, LongerScores] = field(
      'Name of a further test, see `lra.data.longer.split` -> its scores; {} '
      'for tasks without one, and models that cannot read longer sequences.',
      {}, max_length=MOST)
  baselines: dict[Text, Fraction] = field(
      'Name -> accuracy of a method without a neural network.',
      alias='floors', max_length=MOST)
  num_params: Count | None = field(
      "Trainable parameters; never None if the status is 'ok'.")
  mixer_params: Count | None = field('Those of the mixers alone, likewise.')
  state_size: Count | None = field(
      'Numbers that one layer keeps from token to token, see `lra.nn.mixer`; '
      'None if its mixer does not know it.', None)
  steps_per_s: Amount | None = field('Without compilation and evaluation.')
  tokens_per_s: Amount | None
  peak_memory_bytes: Count | None = field(
      "The most memory that the run's process used at once; with several "
      'processes, the largest of these.')
  train_seconds: Amount | None
  eval_seconds: Amount | None
  compile_seconds: Amount | None
  device: Text = field('Kind of device, by its usual name.')
  devices: list[Text] = field(
      'All kinds, if a run was resumed on another one; its speed covers all.',
      [])
  num_devices: AtLeastOne = field('Devices of all processes.', 1)
  num_processes: AtLeastOne = 1
  runs_at_once: AtLeastOne = field(
      'Number of runs that shared the devices, as far as the process can find '
      'out; the memory is that of the process. In some records of an H200 it '
      'was set by hand to 10, for ten processes.', 1)
  microbatch_size: AtLeastOne | None = field(
      'The size on this hardware; earlier versions have it in the config.',
      None)
  eval_batch_size: AtLeastOne | None = None
  draws: Text = field(
      "How dropout and other noise get random keys: 'example', see "
      '`lra.nn.draws`.', 'microbatch')
  dtype: Text = field('Dtype of the computation.')
  kernel: Text | None = field('The kernel that the mixers ran.')
  xla_flags: list[Text] = field(
      "The flags of XLA_FLAGS, then JAX's own settings that were not its "
      'defaults, as variables; of all processes that continued the run.', [])
  git_commit: Text | None = field('None outside of a checkout.')
  git_dirty: bool | None = field(
      'Whether the code that ran was modified or is not in the commit.')
  git_commits: list[Text] = field(
      'All commits, if a run was resumed under another one.', [])
  git_published: bool | None = field(
      'Whether the commits were on the published branch when the run began.',
      None)
  model_sha256: Digest | None = field("Hash of the model's file.", None)
  config_sha256: Digest | None = field("Hash of the config's file.", None)
  changes: dict[str, Any] | None = field(
      'The settings that differ from the protocol: field of the config -> '
      'value of the protocol, which may be lost later. None if not compared.',
      None)
  data_fingerprint: Text = field('Hash of the prepared data set.')
  data_origin: Text | None = field(
      "Origin of the data, which may replace the task's own data.", None)
  search: Search | None = field('The search that chose the settings.', None)
  init_sha256: Digest | None = field(
      'Digest of the parameters of config.init_from that the run began with.',
      None)
  mixer_std: list[MixerStd] = field(
      'One for each validation, with config.train.mixer_std.', [],
      max_length=MOST_TRIED)
  config: Config = field(
      'The whole config. It also has task, model, protocol and seed, and the '
      "number of updates to make, which is `steps` if the status is 'ok'.")

  @property
  def fields(self) -> dict[str, Any]:
    return self.model_dump(by_alias=True, exclude_unset=True)

  @property
  def seconds(self) -> float:
    """Time of training, evaluation and compiling."""
    return sum(filter(None, (
        self.train_seconds, self.eval_seconds, self.compile_seconds)))

  @property
  def finished(self) -> bool:
    """Whether the same command would have nothing left to do."""
    return self.status in FINISHED

  @property
  def record_path(self) -> pathlib.Path:
    """Path of its record, of checked names, from the folder of all records."""
    found = f'-{self.search.digest}' if self.search else ''
    name = (f'{self.model}-{identity.config_hash(self.config)}{found}-'
            f's{self.seed}.json')
    return pathlib.Path(self.task, name)

  @pydantic.model_validator(mode='after')
  def _is_consistent(self):
    ok, asked = self.status == 'ok', self.config.get('train', {}).get('steps')
    null = [name for name in ('test', 'num_params', 'mixer_params')
            if ok and getattr(self, name) is None]
    for wrong, text in (
        (null, f"field '{''.join(null[:1])}' is null but the status is 'ok'"),
        (ok and asked not in (None, self.steps),
         f"field 'steps' is {self.steps} but the status is 'ok' and its config "
         f'has {reprlib.repr(asked)}'),
        ((self.best_step or 0) > self.steps,
         f"field 'best_step' is {self.best_step} but there are {self.steps} "
         'steps'),
        (ok and not self.num_params, "field 'num_params' is 0"),
        (self.status == 'validated' and self.test is not None,
         "field 'test' is not null but the status is 'validated'"),
        (self.search and not self.search.chose(self.config),
         "field 'search' gives no highest score to the settings of its config"),
        (self.num_params is not None and (
            (self.mixer_params or 0) > self.num_params),
         "field 'mixer_params' is larger than 'num_params'")):
      if wrong:
        raise ValueError(text)
    return self

  @pydantic.model_validator(mode='after')
  def _agrees_with_its_config(self):
    config = identity.flatten(self.config)
    for name in ('task', 'model.name', 'protocol', 'seed', 'train.steps'):
      if config.get(name) is None:
        raise ValueError(f"its config has no '{name}'")
    for name in ('task', 'model', 'protocol', 'seed'):
      ours = getattr(self, name)
      theirs = config['model.name' if name == 'model' else name]
      if theirs != ours:
        raise ValueError(
            f"field '{name}' is {ours!r} but its config has "
            f'{reprlib.repr(theirs)}')
    return self


class ClassificationResult(Result):
  val: ClassificationScores | None = pydantic.Field(...)
  test: ClassificationScores | None = pydantic.Field(...)

  @pydantic.model_validator(mode='after')
  def _has_the_classes_of_its_task(self):
    classes = tasks.get(self.task).num_classes
    kept = classes if classes <= tasks.MOST_CLASSES else 0
    for split in ('val', 'test'):
      scores = getattr(self, split)
      if scores is not None and len(scores.confusion) != kept:
        raise ValueError(f"field '{split}.confusion' is not {kept} x {kept}")
    return self


def check_name(field: str, value: str) -> None:
  """Checks, before a run, that records may have a model's or protocol's name.
  """
  try:
    pydantic.TypeAdapter(Name).validate_python(value)
  except pydantic.ValidationError as error:
    raise UserError(
        f'The {field} is called {plain(reprlib.repr(value))}: rename it, with '
        'a-z, 0-9 and _ only, at most 64 of them.') from error


def validate(fields: dict) -> Result:
  try:
    return _result(fields)
  except pydantic.ValidationError as error:
    raise UserError(
        f'The result of this run cannot be kept ({reason(error)}): mend '
        'the code that made it.') from error


def write(path: pathlib.Path, result: Result) -> None:
  files.write_json(path, result.fields)


def read(path: pathlib.Path) -> Result:
  def parse(fields):
    tasks.learn(path.parent)
    return _result(fields)
  return read_record(path, parse, 'result')


def read_if_there(path: pathlib.Path) -> Result | None:
  return read(path) if path.exists() else None


def classified(path: pathlib.Path) -> Result:
  """Returns the result of a finished run of a classifier, or of a record."""
  if path.is_dir():
    path /= 'result.json'
  if not path.exists():
    close = paths.near(path)
    raise UserError(f'{path} does not exist: ' + (
        f'did you mean {close}?' if close else
        'give a run directory that has a result.json, or a record.'))
  result = read(path)
  if result.status != 'ok' or not hasattr(result.test, 'accuracy'):
    raise UserError(
        f'{path} has no test accuracy (status {result.status}, objective '
        f'{result.objective}): give a finished run of a classifier.')
  return result


def _result(fields):
  other = (isinstance(fields, dict) and
           fields.get('objective', CLASSIFICATION) not in CLASSIFIERS)
  return (Result if other else ClassificationResult).model_validate(fields)
