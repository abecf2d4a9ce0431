"""The result of a run, `result.json`: its fields and their checks."""

import json
import pathlib
import reprlib
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import AfterValidator, Field

from lra import bits, files, tasks
from lra.config import identity
from lra.config.fields import FIELDS
from lra.errors import UserError
from lra.formats import plain
from lra.records import record
from lra.records.record import (
  Amount,
  Count,
  Digest,
  File,
  Fraction,
  Name,
  Record,
  TaskName,
  Text,
)

CLASSIFICATION = 'classification'
# Objectives with scores of classes.
CLASSIFIERS = (CLASSIFICATION, 'token_classification')
# Most properties of examples, values of one, and rules.
_MOST = 32
_NAME = pydantic.TypeAdapter(Name)
# A run with one of these statuses is not continued.
FINISHED = ('ok', 'diverged')
# The fields of a config that have fields.
_GROUPS = sorted({name.split('.')[0] for name in FIELDS if '.' in name})


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


# Property of the examples -> its value -> the examples with it.
Parts = Annotated[dict[Text, Annotated[
    dict[Text, Part], Field(max_length=_MOST)]], Field(max_length=_MOST)]


class ClassificationScores(Scores):
  """Scores of a classifier on one split.

  Attributes:
    loss: mean cross entropy, in nats.
    accuracy, precision, recall, f1: fractions; all but the accuracy are means
      over the classes.
    confusion: [C, C], number of examples of each true class (rows) with each
      predicted class (columns).
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
  confusion: list[list[Count]]
  parts: Parts = {}
  agreement: Annotated[
      dict[Text, Fraction], Field(max_length=_MOST)] = {}
  correct: str = ''

  @property
  def examples(self) -> int:
    """Number of examples that were scored."""
    return sum(map(sum, self.confusion))

  @pydantic.model_validator(mode='after')
  def _accuracy_is_that_of_the_confusion(self):
    classes = len(self.confusion)
    if any(len(row) != classes for row in self.confusion):
      raise ValueError("'confusion' is not square")
    if not self.examples:
      raise ValueError("'confusion' counts no example")
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


class Result(File):
  """One run: one config and one seed.

  Attributes:
    status: 'ok', 'diverged' (the loss was not finite), 'oom' (out of memory)
      or 'stopped' (the same command continues the run).
    objective: name of the objective, which decides the scores.
    task, model, protocol, seed: equal to those in `config`.
    steps: updates made.
    best_step: step of the parameters that were tested, if any.
    learnt_step: the first step whose accuracy on the validation split was 95%
      or more; None if there was none, or in old records.
    val: scores of those parameters on the validation split, None without one.
    test: scores on the test split; never None if the status is 'ok'.
    floors: name -> accuracy of a baseline, without a neural network.
    num_params, mixer_params: trainable parameters of the model, and of its
      mixers alone; never None if the status is 'ok'.
    steps_per_s, tokens_per_s: training speed without compilation and
      evaluation.
    peak_memory_bytes: the most memory that its process used at once, in bytes;
      with several processes, the largest.
    train_seconds, eval_seconds, compile_seconds: seconds of each part.
    device: the kind of device, by its usual name.
    devices: all kinds, if a run was resumed on another one. Its speed covers
      all of them.
    num_devices: number of devices, of all processes.
    num_processes: number of processes of the run.
    runs_at_once: number of runs that shared the devices, as far as its process
      can find out. Its speed is its own beside the others, its memory that of
      its process. Some records of an H200 have a ten set by hand, for ten
      processes.
    microbatch_size, eval_batch_size: the batch sizes on this hardware; None in
      records of earlier versions, whose configs have them.
    draws: method of dropout and other noise: 'example', see `lra.nn.draws`;
      'microbatch' in earlier versions, which did not record it.
    dtype: dtype of the computation.
    kernel: the kernel that the mixers ran.
    xla_flags: the flags of XLA_FLAGS, then JAX's own settings that were not
      its defaults, as variables; of all processes that continued the run.
    git_commit, git_dirty: version of the code, and whether the code that ran
      was modified or is not in it; None outside of a checkout.
    git_commits: all versions, if a run was resumed under another one.
    git_published: whether these were on the published branch when the run
      began; None if unknown.
    model_sha256, config_sha256: hashes of the files of the model and the
      config; None if unknown.
    changes: the settings that differ from the protocol, {field of the config:
      value of the protocol}. They are stored, since a protocol may be lost
      later. None if they were not compared.
    data_fingerprint: hash of the prepared data set.
    data_origin: origin of the data, which may replace the task's own data; None
      if unknown.
    config: the whole config, as plain JSON values. It also has task, model,
      protocol and seed, and the number of updates to make, which is `steps` if
      the status is 'ok'.
  """
  status: Literal['ok', 'diverged', 'oom', 'stopped']
  objective: Text = CLASSIFICATION
  task: TaskName
  model: Name
  protocol: Name
  seed: Count
  steps: Count
  best_step: Count | None
  learnt_step: Count | None = None
  val: Scores | None
  test: Scores | None
  floors: Annotated[dict[Text, Fraction], Field(max_length=record.MAX_FLOORS)]
  num_params: Count | None
  mixer_params: Count | None
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
  config: Config

  @property
  def finished(self) -> bool:
    """Whether the same command would have nothing left to do."""
    return self.status in FINISHED

  @property
  def record_path(self) -> pathlib.Path:
    """Path of its record from the folder of all records.

    It is made of checked names, so it cannot lead out of that folder.
    """
    name = f'{self.model}-{identity.config_hash(self.config)}-s{self.seed}.json'
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
    both = self.num_params is not None and self.mixer_params is not None
    if both and self.mixer_params > self.num_params:
      raise ValueError("field 'mixer_params' is larger than 'num_params'")
    return self

  @pydantic.model_validator(mode='after')
  def _agrees_with_its_config(self):
    said = identity.flatten(self.config)
    for name in ('task', 'model.name', 'protocol', 'seed', 'train.steps'):
      if said.get(name) is None:
        raise ValueError(f"its config has no '{name}'")
    for name in ('task', 'model', 'protocol', 'seed'):
      ours = getattr(self, name)
      theirs = said['model.name' if name == 'model' else name]
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
    classes = tasks.TASKS[self.task].num_classes
    for split in ('val', 'test'):
      scores = getattr(self, split)
      if scores is not None and len(scores.confusion) != classes:
        raise ValueError(
            f"field '{split}.confusion' is not {classes} x {classes}")
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
  """Raises UserError if no result may have this name of a model or protocol.

  It is called before a run begins, since its result could not be kept.
  """
  try:
    _NAME.validate_python(value)
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
        f'The result of this run cannot be kept ({record.reason(error)}): mend '
        'the code that made it.') from error


def write(path: pathlib.Path, result: Result) -> None:
  """Writes a result as JSON, all or nothing; UserError if that fails."""
  files.write_json(path, result.model_dump(exclude_unset=True))


def read(path: pathlib.Path) -> Result:
  """Returns the result in `path`; raises UserError naming file and field."""
  return record.read(path, _result, 'result')


def read_if_there(path: pathlib.Path) -> Result | None:
  """Returns the result in `path` like `read`; None if the file is missing."""
  return read(path) if path.exists() else None


def _result(fields):
  other = (isinstance(fields, dict) and
           fields.get('objective', CLASSIFICATION) not in CLASSIFIERS)
  return (Result if other else ClassificationResult).model_validate(fields)
