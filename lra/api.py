"""Trained models from Python: `lra.load(folder)`, then predict and evaluate."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from data_prep import encode
from lra import place
from lra.data import batches, prepared
from lra.errors import UserError
from lra.terminal import say
from lra.training import evaluate, program, provenance, restore


@dataclasses.dataclass(frozen=True)
class Prediction:
  """What a model says of an example.

  Attributes:
    label: the likeliest class, from 0.
    name: what that class is called.
    probabilities: float32 [C].
  """
  label: int
  name: str
  probabilities: np.ndarray


@dataclasses.dataclass(frozen=True)
class Trained:
  """A model with trained parameters.

  Attributes:
    program: the compiled functions of its config, on one device.
    params, constants: the model's variables.
    step: updates that made the parameters.
    data: fingerprint and origin of the data that they were trained on, None
      for what is not known.
  """
  program: program.Program
  params: Any
  constants: Any
  step: int
  data: tuple[str | None, str | None] = (None, None)

  @property
  def config(self):
    """The whole config, a ConfigDict."""
    return self.program.config

  def predict(self, examples: Iterable) -> list[Prediction]:
    """Classes of examples in their own form.

    Args:
      examples: of ListOps expressions such as '[MAX 2 9 [MIN 4 7 ] 0 ]'; of
        Text str or bytes; of Retrieval pairs of them; of images files, PIL
        images or uint8 arrays, [S, S] or [S, S, 3]. What is longer than the
        model's sequences is cut, as in training.

    Raises:
      UserError: an example is not what the task wants, or the task has no
        classes of whole examples; names the example.
    """
    task = self.program.objective.task
    if task.probe or self.config.objective != 'classification':
      raise UserError(
          f'{task.name} with config.objective={self.config.objective} gives no '
          'example a class: only classification is predicted.')
    if isinstance(examples, str | bytes):
      raise UserError('predict wants a list of examples: put this one in [ ].')
    examples = list(examples)
    if not examples:
      return []
    split = encode.split(task, examples)
    names = encode.names(task)
    return [Prediction(int(p.argmax()), names[int(p.argmax())], p)
            for p in self._probabilities(split)]

  def evaluate(self, split: str = 'test', data_dir=None, *,
               same_data: bool = False) -> dict[str, Any]:
    """Scores of a split of the task's data: accuracy, loss and others.

    Where the model was trained on other data, stderr says so.

    Args:
      split: 'val' or 'test'; 'train' takes long.
      data_dir: where prepared data is; by default where the config says.
      same_data: whether data that the model was not trained on is an error.

    Raises:
      UserError: there is no such split, its data cannot be prepared, or it is
        other data against `same_data`.
    """
    data = prepared.load(
        self.config.task, data_dir or self.config.data_dir or None)
    other = self._other_than(data)
    if other and same_data:
      raise UserError(f'{other}: set TFDS_DATA_DIR to the folder of its data.')
    if other:
      say(f'{other}: these scores are of the other data.')
    if split not in data.splits:
      raise UserError(f'There is no split {split!r}: choose one of '
                      f'{", ".join(data.splits)}.')
    scored = {'params': self.params, 'constants': self.constants}
    program, eval_step = self._fitted
    counts = evaluate.evaluate(eval_step, program, scored, data.splits[split])
    return self.program.objective.scores(counts)

  def _other_than(self, data):
    """How data is other than what the model was trained on, '' if not."""
    fingerprint, origin = self.data
    if fingerprint in (None, data.fingerprint):
      return ''
    named = [f'{made or "unknown"}, {digest[:8]}' for made, digest in (
        (origin, fingerprint),
        (data.info.get('origin'), data.fingerprint))]
    return (f'The model was trained on {self.config.task} of another origin or '
            f'version ({named[0]}) than is prepared now ({named[1]})')

  @functools.cached_property
  def _fitted(self):
    return self.program.fit_eval()

  @functools.cached_property
  def _apply(self):
    def probabilities(variables, inputs):
      logits = self.program.model.apply(variables, inputs, train=False)
      return jax.nn.softmax(logits)
    return jax.jit(probabilities)

  def _probabilities(self, split):
    """float32 [N, C], batch by batch."""
    variables = {'params': self.params, **self.constants}
    objective = self.program.objective
    found = [
        jax.device_get(self._apply(variables, objective.inputs(batch)))
        for batch in batches.eval_batches(
            functools.partial(objective.batch, split), np.arange(len(split)),
            batch_size=self.program.sizes.eval_batch)]
    return np.concatenate(found)[:len(split)]


def load(folder: str | os.PathLike) -> Trained:
  """The model of a run, with the parameters that its test score is of.

  Of a run that is not finished: the best so far. Nothing in the folder is
  changed, so that a run may be under way in it. Where the model's file is
  another one than the run began with, stderr says so.

  Args:
    folder: a run directory, as `runs/<task>/<model>/<config hash>-s<seed>`, or
      for other parameters one of its checkpoints: `checkpoints/best`,
      `checkpoints/last` or a step in these.

  Raises:
    UserError: it is neither, has no checkpoint yet, is damaged, or its config
      is another than that of the checkpoint.
  """
  folder = pathlib.Path(place.local(folder))
  made, scored, step = restore.scored(folder)
  model = made.config.model.name
  provenance.warn_of_edits(
      ((place, model, provenance.of_folder(place))
       for place in (folder, *folder.absolute().parents[:3])
       if (place / 'config.json').exists()), provenance.LOADED)
  return Trained(made, scored['params'], scored['constants'], step,
                 restore.data(folder))
