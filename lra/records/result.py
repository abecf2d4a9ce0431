"""Records: JSON files of a fixed form, such as the result of a run.

Types are checked strictly. Values are bounded, far beyond those of any real
run. An error names the file and the field. JSON calls the baselines `floors`.
"""

import hashlib
import itertools
import json
import math
import pathlib
import re
import reprlib
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pydantic
from pydantic import AfterValidator, Field

from lra import bits, files, tasks
from lra.config import identity
from lra.config.fields import FIELDS
from lra.errors import UserError
from lra.formats import plain

# A record has some kilobytes: a larger file is no record.
MAX_BYTES = 2**20
MAX_DEPTH = 20
_SURROGATE = re.compile('[\ud800-\udfff]')
CLASSIFICATION = 'classification'
MIXER_STD = 'mixer_std'  # a kind of log point
# Objectives with scores of classes.
CLASSIFIERS = (CLASSIFICATION, 'token_classification')
# Largest number of entries: baselines, properties of examples, values of one
# property, rules.
_MOST = 32
_MOST_TRIED = 1000  # most settings of a search
# A run with one of these statuses is not continued.
FINISHED = ('ok', 'diverged')
# A search is complete if each of its runs has one of these statuses.
SEARCHED = (*FINISHED, 'validated')
# The groups of fields in a config, such as 'train'.
_GROUPS = sorted({name.split('.')[0] for name in FIELDS if '.' in name})


class InvalidRecord(UserError):
  """Raised for a file that is not a valid record.

  Attributes:
    why: the reason in a few words, without the file's name.
  """

  def __init__(self, path: pathlib.Path, kind: str, why: str):
    super().__init__(
        f'{plain(str(path))} is not a valid {kind} record ({why}): restore it, '
        'make it again or delete it, then repeat the command.')
    self.why = why


class Record(pydantic.BaseModel):
  """A JSON object with described fields; other fields are kept unchanged.

  Nothing is converted: '3', True, nan and inf are no numbers.
  """
  model_config = pydantic.ConfigDict(
      strict=True, frozen=True, extra='allow', allow_inf_nan=False)


class File(Record):
  """A record with a file of its own; all its content can be written as JSON."""

  @pydantic.model_validator(mode='before')
  @classmethod
  def _can_be_written(cls, fields):
    """Checks fields without a described type, too, for what JSON can store."""
    level = [('', fields)]
    for _ in range(MAX_DEPTH):
      level = [inner for item in level for inner in _inside(*item)
               if type(inner[1]) is not int]  # most values are counts
      if not level:
        return fields
    raise ValueError(f'it is nested more than {MAX_DEPTH} deep')


def _inside(name, value):
  """Returns the (name, value) pairs inside a value.

  Raises ValueError if JSON cannot store the value.
  """
  if isinstance(value, dict):
    parts = [(f'{name}.{key}'.lstrip('.')[:100], inner)
             for key, inner in value.items()]
    return parts + [(name, key) for key in value if not str(key).isascii()]
  if isinstance(value, list | tuple):
    return [(name, inner) for inner in value]
  if (isinstance(value, float) and not math.isfinite(value)) or (
      isinstance(value, str) and not value.isascii()
      and _SURROGATE.search(value)):
    raise ValueError(
        f"field '{plain(name, most=100)}' is {plain(reprlib.repr(value))}: it "
        'cannot be stored as JSON')
  return ()


def _not_blank(text):
  if not plain(text):
    raise ValueError('it should not be blank')
  return text


def _like(pattern, sentence):
  def check(text):
    if not re.fullmatch(pattern, text):
      raise ValueError(sentence)
    return text
  return check


def _known(task):
  if task not in tasks.TASKS and task not in tasks.HARDER:
    raise ValueError(f'it should be one of {", ".join(tasks.TASKS)}')
  return task


Text = Annotated[str, Field(max_length=1000), AfterValidator(_not_blank)]
# Part of the name of a file.
Name = Annotated[str, AfterValidator(_like(
    '[a-z0-9_]{1,64}', 'it should be of a-z, 0-9 and _, 64 at most'))]
Digest = Annotated[str, AfterValidator(_like(
    '[0-9a-f]{64}', 'it should be 64 hexadecimal digits'))]
# Tokens of a sequence: a number or a range.
Length = Annotated[str, AfterValidator(_like(
    '[0-9]{1,9}([-/][0-9]{1,9})?', 'it should be like 64, 40-256 or 512/128'))]
TaskName = Annotated[str, AfterValidator(_known)]
Count = Annotated[int, Field(ge=0, le=10**18)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
Fraction = Annotated[float, Field(ge=0, le=1)]

R = TypeVar('R', bound=Record)


def read_record(path: pathlib.Path, parse: Callable[[object], R],
                kind: str) -> R:
  """Returns the record in a file.

  Args:
    path: a JSON file.
    parse: makes a record of its content, or raises a ValidationError.
    kind: kind of record, for the error.

  Raises:
    InvalidRecord: the file is not such a record; names the file and the field.
  """
  try:
    return parse(files.read_json(path, MAX_BYTES))
  except pydantic.ValidationError as error:
    why, cause = reason(error), error
  except UserError as error:
    what = error.__cause__
    why, cause = 'it is damaged: ' + plain(
        str(getattr(what, 'strerror', None) or what)), error
  except RecursionError as error:
    why, cause = f'it is nested more than {MAX_DEPTH} deep', error
  except ValueError as error:
    why, cause = str(error), error
  raise InvalidRecord(path, kind, why) from cause



def reason(error: pydantic.ValidationError) -> str:
  """Returns the first fault, in a few words that name the field."""
  first = error.errors(include_url=False)[0]
  field = f"field '{plain('.'.join(map(str, first['loc'])), most=100)}'"
  what = first['msg'].removeprefix('Value error, ')
  what = plain(what.replace('Input should', 'it should'))
  if first['type'] == 'model_type':
    what = 'it should be a JSON object'
  if first['type'] == 'missing':
    return f'{field} is missing'
  if not first['loc']:
    return what
  if isinstance(first['input'], dict | list):
    return f'{field}: {what}'
  return f'{field} is {plain(reprlib.repr(first["input"]))}: {what}'


def _plain(config):
  """Returns the config as JSON values: tuples become lists."""
  for group in _GROUPS:
    if not isinstance(config.get(group, {}), dict):
      raise ValueError(f"its '{group}' is not an object")
  return json.loads(json.dumps(config, allow_nan=False))


Config = Annotated[dict[str, Any], AfterValidator(_plain)]


class Scores(Record):
  """Scores of one split: numbers by name, for any objective.

  Attributes:
    loss: mean over the examples.
  """
  __pydantic_extra__: dict[str, float]
  loss: float


class Part(Record):
  """The examples of one kind: their number, and the accuracy on them."""
  examples: Count
  accuracy: Fraction


# Property of the examples -> its value -> the examples with this value.
Parts = Annotated[dict[Text, Annotated[
    dict[Text, Part], Field(max_length=_MOST)]], Field(max_length=_MOST)]


class ClassificationScores(Scores):
  """Scores of a classifier on one split.

  Attributes:
    loss: mean cross entropy, in nats.
    accuracy, precision, recall, f1: fractions; all but the accuracy are means
      over the classes.
    confusion: [C, C], number of examples of each true class (rows) with each
      predicted class (columns); [] if the task has more than
      `lra.tasks.MOST_CLASSES` classes.
    counted: number of examples that were scored; only without a confusion.
    parts: property of the examples -> its value -> the examples with it; only
      for the test split of some tasks.
    agreement: name of a simple rule -> share of the examples on which it gives
      the same class, right or wrong.
    correct: whether the class of each example is right, in the order of the
      prepared data, see `lra.bits`; '' if it was not kept.
  """
  loss: Annotated[float, Field(ge=0, le=1e300)]
  accuracy: Fraction
  precision: Fraction
  recall: Fraction
  f1: Fraction
  confusion: list[list[Count]] = []
  counted: Count = 0
  parts: Parts = {}
  agreement: Annotated[
      dict[Text, Fraction], Field(max_length=_MOST)] = {}
  correct: str = ''

  @property
  def examples(self) -> int:
    """Number of examples that were scored."""
    return sum(map(sum, self.confusion)) if self.confusion else self.counted

  @pydantic.model_validator(mode='after')
  def _accuracy_is_that_of_the_confusion(self):
    classes = len(self.confusion)
    if any(len(row) != classes for row in self.confusion):
      raise ValueError("'confusion' is not square")
    if not self.examples:
      raise ValueError("'confusion' counts no example")
    if not self.confusion:
      return self._accuracy_is_that_of_the_count()
    hits = sum(self.confusion[i][i] for i in range(classes))
    if abs(hits / self.examples - self.accuracy) > 1e-6:
      raise ValueError(f"'confusion' gives accuracy {hits / self.examples:.6f} "
                       f"but 'accuracy' is {self.accuracy:.6f}")
    if self.correct and bits.unpack(
        self.correct, self.examples).sum() != hits:
      raise ValueError(f"'correct' does not hold {hits} correct answers")
    for name, value in _means_over_classes(self.confusion).items():
      if abs(value - getattr(self, name)) > 1e-6:
        raise ValueError(f"'confusion' gives {name} {value:.6f} but '{name}' "
                         f'is {getattr(self, name):.6f}')
    return self

  def _accuracy_is_that_of_the_count(self):
    hits = round(self.accuracy * self.counted)
    if abs(self.accuracy * self.counted - hits) > 1e-6 * self.counted:
      raise ValueError(f"'accuracy' is {self.accuracy:.6f}, which no number of "
                       f"the {self.counted} examples in 'counted' is")
    if self.correct and bits.unpack(self.correct, self.counted).sum() != hits:
      raise ValueError(f"'correct' does not hold {hits} correct answers")
    return self


class LongerScores(Record):
  """Scores on generated sequences of a length, or of a range of lengths.

  Attributes:
    examples: number of sequences.
    accuracy: fraction of right answers, over all questions of the sequences.
    loss: mean cross entropy, in nats.
  """
  examples: Annotated[int, Field(ge=1, le=10**9)]
  accuracy: Fraction
  loss: Annotated[float, Field(ge=0, le=1e300)]


class MixerStd(Record):
  """Standard deviations of the mixers' outputs at a step of the training.

  Attributes:
    step: updates made.
    blocks: one for each block; None if it was not finite.
  """
  step: Count
  blocks: Annotated[list[Amount | None], Field(max_length=_MOST_TRIED)]


class Search(Record):
  """The search that chose the settings of a run, without any test score.

  Attributes:
    tried: number of settings that were tried, n.
    grid: field of the config -> the values that were tried; of a sampler, the
      values or the range to draw from.
    chosen_by: the score that decided.
    seed: seed of the runs that were compared.
    scores: pairs of a setting, {field: value}, and its validation accuracy;
      None if its loss was not finite, or if it was pruned.
    sampler: 'grid' tries all values; 'tpe' draws from them, see
      `lra.sweeps.search`.
    pruned: number of settings whose runs were stopped early.
  """
  tried: Annotated[int, Field(ge=1, le=_MOST_TRIED)]
  grid: Annotated[dict[Text, list[Any]],
                  Field(min_length=1, max_length=_MOST)]
  chosen_by: Literal['validation accuracy']
  seed: Count
  scores: Annotated[list[Annotated[
      tuple[dict[Text, Any], Fraction | None], Field(strict=False)]],
                    Field(max_length=_MOST_TRIED)]
  sampler: Literal['grid', 'tpe'] = 'grid'
  pruned: Count = 0

  @property
  def text(self) -> str:
    how = '' if self.sampler == 'grid' else (
        f' ({self.sampler.upper()}, {self.pruned} pruned)')
    return f'best of {self.tried}{how} by validation'

  @property
  def digest(self) -> str:
    """Eight hex digits that differ between searches."""
    text = json.dumps(self.model_dump(exclude_unset=True), sort_keys=True)
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
        raise ValueError("'pruned' is more than there are without a score")
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
    """Returns whether a config has one of the best settings."""
    flat = identity.flatten(config)
    mine = {name: flat.get(name) for name in self.grid}
    known = [score for _, score in self.scores if score is not None]
    return bool(known) and [mine, max(known)] in [
        [setting, score] for setting, score in self.scores]


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
      `lra.nn.state`; None if its mixer does not know it, or in old records.
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
      dict[Length, LongerScores], Field(max_length=_MOST)] = {}
  baselines: Annotated[
      dict[Text, Fraction], Field(alias='floors', max_length=_MOST)]
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
      list[MixerStd], Field(max_length=_MOST_TRIED)] = []
  config: Config

  # Earlier versions call the baselines floors.
  floors = property(lambda self: self.baselines)

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


def _means_over_classes(confusion):
  """Returns macro precision, recall and F1; 0 for a class with divisor 0."""
  counts = np.array(confusion, np.float64)
  hits = np.diag(counts)
  predicted, true = counts.sum(0), counts.sum(1)
  scores = {'precision': hits / np.maximum(predicted, 1),
            'recall': hits / np.maximum(true, 1),
            'f1': 2 * hits / np.maximum(predicted + true, 1)}
  return {name: float(score.mean()) for name, score in scores.items()}


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
