"""The result of a run: one config and one seed."""

import json
import pathlib
import reprlib
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, Field

from lra.core import files, tasks
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.schema import identity
from lra.schema.fields import FIELDS
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
from lra.schema.search import MOST_TRIED, Search

# A run with one of these statuses is not continued.
FINISHED = ('ok', 'diverged')
# A search is complete if each of its runs has one of these statuses.
SEARCHED = (*FINISHED, 'validated')
# The groups of fields in a config, such as 'train'.
_GROUPS = sorted({name.split('.')[0] for name in FIELDS if '.' in name})


def _plain(config):
  """Returns the config as JSON values: tuples become lists."""
  for group in _GROUPS:
    if not isinstance(config.get(group, {}), dict):
      raise ValueError(f"its '{group}' is not an object")
  return json.loads(json.dumps(config, allow_nan=False))


Config = Annotated[dict[str, Any], AfterValidator(_plain)]


class MixerStd(Record):
  """Standard deviations of the mixers' outputs at a step of the training.

  Attributes:
    step: updates made.
    blocks: one for each block; None if it was not finite.
  """
  step: Count
  blocks: Annotated[list[Amount | None], Field(max_length=MOST_TRIED)]


class Result(File):
  """One run: one config and one seed.

  Attributes:
    status: 'ok', 'diverged' (the loss was not finite), 'oom' (out of memory),
      'stopped' (the same command continues the run) or 'validated' (trained,
      but the test split was not read: the same command without --notest does).
    objective: name of the objective, which decides the scores.
    task, model, protocol, seed: equal to those in `config`.
    steps: updates made.
    best_step: step of the parameters that were tested, if any.
    learnt_step: the first step whose accuracy on the validation split was 95%
      or more; None if there was none, or in old records.
    guessing_step: the step at which the training loss had been that of guessing
      for a tenth of all steps; None if it never was, or in old records.
    val: scores of the tested parameters on the validation split, or None.
    test: scores on the test split; never None if the status is 'ok'.
    longer: name of a further test, see `lra.data.longer.split` -> its scores;
      {} for tasks without such tests, for models that cannot read longer
      sequences, and in old records.
    baselines: name -> accuracy of a method without a neural network; `floors`
      in JSON.
    num_params, mixer_params: trainable parameters of the model, and of its
      mixers alone; never None if the status is 'ok'.
    state_size: numbers that one layer keeps from token to token, see
      `lra.nn.mixer`; None if its mixer does not know it, or in old records.
    steps_per_s, tokens_per_s: training speed without compilation and
      evaluation.
    peak_memory_bytes: the most memory that the run's process used at once, in
      bytes; with several processes, the largest of these.
    train_seconds, eval_seconds, compile_seconds: seconds of each part.
    device: the kind of device, by its usual name.
    devices: all kinds, if a run was resumed on another one. Its speed covers
      all of them.
    num_devices: number of devices, of all processes.
    num_processes: number of processes of the run.
    runs_at_once: number of runs that shared the devices, as far as the process
      can find out. The speed is that of this run beside the others; the memory
      is that of the process. In some records of an H200 the number was set by
      hand to 10, for ten processes.
    microbatch_size, eval_batch_size: the batch sizes on this hardware; None in
      records of earlier versions, whose configs have them.
    draws: how dropout and other noise get random keys: 'example', see
      `lra.nn.draws`; or 'microbatch' in earlier versions, not stored.
    dtype: dtype of the computation.
    kernel: the kernel that the mixers ran.
    xla_flags: the flags of XLA_FLAGS, then JAX's own settings that were not
      its defaults, as variables; of all processes that continued the run.
    git_commit, git_dirty: version of the code, and whether the code that ran
      was modified or is not in it; None outside of a checkout.
    git_commits: all versions, if a run was resumed under another one.
    git_published: whether these commits were on the published branch when the
      run began; None if unknown.
    model_sha256, config_sha256: hashes of the files of the model and the
      config; None if unknown.
    changes: the settings that differ from the protocol, {field of the config:
      value of the protocol}. They are stored, since a protocol may be lost
      later. None if they were not compared.
    data_fingerprint: hash of the prepared data set.
    data_origin: origin of the data, which may replace the task's own data; None
      if unknown.
    search: the search that chose the settings; None without one.
    init_sha256: digest of the parameters of config.init_from that the run began
      with; None without them.
    mixer_std: see `MixerStd`, one for each validation; only with
      config.train.mixer_std.
    config: the whole config, as plain JSON values. It also has task, model,
      protocol and seed, and the number of updates to make, which is `steps` if
      the status is 'ok'.
  """
  status: Literal['ok', 'diverged', 'oom', 'stopped', 'validated']
  objective: Text = CLASSIFICATION
  task: TaskName
  model: Name
  protocol: Name
  seed: Count
  steps: Count
  best_step: Count | None
  learnt_step: Count | None = None
  guessing_step: Count | None = None
  val: Scores | None
  test: Scores | None
  longer: Annotated[
      dict[Length, LongerScores], Field(max_length=MOST)] = {}
  baselines: Annotated[
      dict[Text, Fraction], Field(alias='floors', max_length=MOST)]
  num_params: Count | None
  mixer_params: Count | None
  state_size: Count | None = None
  steps_per_s: Amount | None
  tokens_per_s: Amount | None
  peak_memory_bytes: Count | None
  train_seconds: Amount | None
  eval_seconds: Amount | None
  compile_seconds: Amount | None
  device: Text
  devices: list[Text] = []
  num_devices: Annotated[int, Field(ge=1)] = 1
  num_processes: Annotated[int, Field(ge=1)] = 1
  runs_at_once: Annotated[int, Field(ge=1)] = 1
  microbatch_size: Annotated[int, Field(ge=1)] | None = None
  eval_batch_size: Annotated[int, Field(ge=1)] | None = None
  draws: Text = 'microbatch'
  dtype: Text
  kernel: Text | None
  xla_flags: list[Text] = []
  git_commit: Text | None
  git_dirty: bool | None
  git_commits: list[Text] = []
  git_published: bool | None = None
  model_sha256: Digest | None = None
  config_sha256: Digest | None = None
  changes: dict[str, Any] | None = None
  data_fingerprint: Text
  data_origin: Text | None = None
  search: Search | None = None
  init_sha256: Digest | None = None
  mixer_std: Annotated[
      list[MixerStd], Field(max_length=MOST_TRIED)] = []
  config: Config

  @property
  def fields(self) -> dict[str, Any]:
    """The fields that were given, by their names in JSON."""
    return self.model_dump(by_alias=True, exclude_unset=True)

  @property
  def finished(self) -> bool:
    """Whether the same command would have nothing left to do."""
    return self.status in FINISHED

  @property
  def record_path(self) -> pathlib.Path:
    """Path of its record from the folder of all records.

    The path consists of checked names, so it cannot lead out of that folder.
    """
    found = f'-{self.search.digest}' if self.search else ''
    name = (f'{self.model}-{identity.config_hash(self.config)}{found}-'
            f's{self.seed}.json')
    return pathlib.Path(self.task, name)

  @pydantic.model_validator(mode='after')
  def _is_complete(self):
    for name in ('test', 'num_params', 'mixer_params'):
      if self.status == 'ok' and getattr(self, name) is None:
        raise ValueError(f"field '{name}' is null but the status is 'ok'")
    asked = self.config.get('train', {}).get('steps')
    if self.status == 'ok' and asked is not None and self.steps != asked:
      raise ValueError(
          f"field 'steps' is {self.steps} but the status is 'ok' and its "
          f'config has {reprlib.repr(asked)}')
    if self.best_step is not None and self.best_step > self.steps:
      raise ValueError(f"field 'best_step' is {self.best_step} but there are "
                       f'{self.steps} steps')
    if self.status == 'ok' and not self.num_params:
      raise ValueError("field 'num_params' is 0")
    if self.status == 'validated' and self.test is not None:
      raise ValueError("field 'test' is not null but the status is 'validated'")
    if self.search and not self.search.chose(self.config):
      raise ValueError("field 'search' gives no highest score to the settings "
                       'of its config')
    if self.num_params is not None and (self.mixer_params or 0) > (
        self.num_params):
      raise ValueError("field 'mixer_params' is larger than 'num_params'")
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
  """A run whose objective is classification."""
  val: ClassificationScores | None
  test: ClassificationScores | None

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
  """Raises UserError if a model or protocol has a name that no result may have.

  Call it before a run begins, because its result could not be stored.
  """
  try:
    pydantic.TypeAdapter(Name).validate_python(value)
  except pydantic.ValidationError as error:
    raise UserError(
        f'The {field} is called {plain(reprlib.repr(value))}: rename it, with '
        'a-z, 0-9 and _ only, at most 64 of them.') from error


def validate(fields: dict) -> Result:
  """Returns a new result made of its fields.

  Raises:
    UserError: a field is missing, of the wrong type or out of range, or two
      of them contradict each other; names the field.
  """
  try:
    return _result(fields)
  except pydantic.ValidationError as error:
    raise UserError(
        f'The result of this run cannot be kept ({reason(error)}): mend '
        'the code that made it.') from error


def write(path: pathlib.Path, result: Result) -> None:
  """Writes a result as JSON, all or nothing; UserError if that fails."""
  files.write_json(path, result.fields)


def read(path: pathlib.Path) -> Result:
  """Returns the result in `path`; raises UserError naming file and field."""
  return read_record(path, _result, 'result')


def read_if_there(path: pathlib.Path) -> Result | None:
  """Returns the result in `path` like `read`; None if the file is missing."""
  return read(path) if path.exists() else None


def classified(path: pathlib.Path) -> Result:
  """Returns the result of a finished run of a classifier.

  Args:
    path: a run directory, or a record.

  Raises:
    UserError: there is no result, or it is invalid or has no test accuracy.
  """
  path = path / 'result.json' if path.is_dir() else path
  if not path.exists():
    raise UserError(f'{path} does not exist: give a run directory that has a '
                    'result.json, or a record.')
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
