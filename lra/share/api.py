"""Trained models in Python: `lra.load(folder)`, then predict and evaluate."""

import dataclasses
import functools
import os
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from lra.core import bits, tasks
from lra.core.errors import UserError, choose
from lra.core.terminal import say
from lra.data import batches, longer, prepared
from lra.data_prep import encode
from lra.run import program, provenance, restore, scoring
from lra.share import hub, int8


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The likeliest class of an example, from 0, and probabilities float32 [C].
  """
  label: int
  name: str
  probabilities: np.ndarray


@dataclasses.dataclass(frozen=True)
class Trained:
  """A model with trained parameters, made by `step` updates.

  `program` has the compiled functions of its config, on one device; `data` the
  fingerprint and origin of the training data, each None if unknown.
  """
  program: program.Program
  params: Any
  constants: Any
  step: int
  data: tuple[str | None, str | None] = (None, None)

  config = property(lambda self: self.program.config)

  def predict(self, examples: Iterable) -> list[Prediction]:
    """Classifies examples given in their own form.

    These are ListOps expressions such as '[MAX 2 9 [MIN 4 7 ] 0 ]'; str or
    bytes of Text; pairs of these for Retrieval. Images are files, PIL images or
    uint8 arrays, [S, S] or [S, S, 3]. Longer examples are cut, as in training,
    with a message on stderr.
    A UserError names an example that does not fit the task.
    """
    task = self.program.objective.task
    if task.probe or self.config.objective != 'classification':
      raise UserError(
          f'{task.name} with config.objective={self.config.objective} has no '
          'class per example: predict works for classification only.')
    if isinstance(examples, str | bytes):
      raise UserError('predict needs a list of examples: put this one in [ ].')
    examples = list(examples)
    if not examples:
      return []
    split = encode.split(tasks.get(task.name), examples)  # with its own ids
    words, most = (
        self.program.experiment.vocabulary, self.program.objective.seq_len)
    if words:  # one token more shows which inputs are longer
      split = words.split(split, most + 1)
    cut = np.diff(split.offsets) > most
    if cut.any():
      say(f'{cut.sum():,} of {len(cut):,} inputs are longer than the {most:,} '
          'tokens that the model reads: their ends are cut off.')
    if words:  # the last token is [SEP]
      split = dataclasses.replace(
          split, tokens=np.delete(split.tokens, split.offsets[1:][cut] - 2),
          offsets=split.offsets - np.cumsum([0, *cut]))
    names, found = encode.names(task), self._probabilities(split)
    return [Prediction(int(label), names[label], p)
            for label, p in zip(found.argmax(-1), found, strict=True)]

  def evaluate(self, split: str = 'test', data_dir=None, *,
               same_data: bool = False) -> dict[str, Any]:
    """Computes the scores of a split of the task's data, such as accuracy.

    Args:
      split: 'val' or 'test'; 'train' takes long.
      data_dir: folder of the prepared data; by default that of the config.
      same_data: whether data other than that of the training is an error; if
        not, it gives a message on stderr.
    """
    _, counts = self._counted(split, data_dir, same_data)
    return self.program.objective.scores(counts)

  def answers(self, split: str = 'test', data_dir=None, *,
              same_data: bool = False) -> tuple[dict[str, Any], np.ndarray]:
    """Returns the scores of `evaluate`, and bool [N]: the right examples."""
    data, counts = self._counted(split, data_dir, same_data)
    objective, examples = self.program.objective, data.splits[split]
    further = objective.analysis(counts, self.program.order(examples),
                                 data.splits['train'], examples)
    if 'correct' not in further:
      raise UserError(f'{self.config.task} with config.objective='
                      f'{self.config.objective} has no class per example: '
                      'choose a run of classification.')
    return (objective.scores(counts),
            bits.unpack(further['correct'], len(examples)))

  def quantised(self) -> 'Trained':
    """Returns the model with int8 dense layers; UserError without Qwix."""
    other, params = int8.program(self.program, self.params, self.constants)
    return dataclasses.replace(self, program=other, params=params)

  @functools.cached_property
  def fitted(self) -> tuple[Any, Any]:
    """The program and its compiled evaluation step, at a size that fits."""
    return self.program.fit_eval()

  def _counted(self, split, data_dir, same_data):
    """Returns (the data, counts of the batches of a split)."""
    data = self.program.experiment.data(data_dir)
    other = self._other_than(data)
    if other and same_data:
      raise UserError(f'{other}: set TFDS_DATA_DIR to the folder of its data.')
    if other:
      say(f'{other}: these scores are for the other data.')
    if split not in data.splits:
      raise UserError(
          f'There is no split {split!r}: {choose(split, data.splits)}')
    scored = {'params': self.params, 'constants': self.constants}
    program, eval_step = self.fitted
    counts = program.evaluate(eval_step, scored, data.splits[split])
    assert counts is not None  # None only if it was asked to stop
    return data, counts

  def evaluate_longer(self, name: str) -> dict[str, Any]:
    """Scores generated sequences of other lengths than those of training.

    The name is such as '64' or '40-256', see `lra.data.longer.split`. Returns
    `examples`, `accuracy` (a fraction) and `loss` (nats).
    """
    if isinstance(self.program.model, int8.Quantised):
      raise UserError('An int8 version cannot read other lengths: use the '
                      'model that it was made of.')
    split = longer.split(self.config.task, name)
    program, eval_step = scoring.at_length(
        self.program, int(prepared.lengths(split).max())).fit_eval()
    scores = scoring.at_other_length(
        program, eval_step,
        {'params': self.params, 'constants': self.constants}, split)
    assert scores is not None  # None only if it was asked to stop
    return scores

  def _other_than(self, data):
    """Returns how data differs from the training data; '' if it does not."""
    fingerprint, origin = self.data
    if fingerprint in (None, data.fingerprint):
      return ''
    named = [f'{made or "unknown"}, {digest[:8]}' for made, digest in (
        (origin, fingerprint),
        (data.info.get('origin'), data.fingerprint))]
    return (f'The model was trained on {self.config.task} of another origin or '
            f'version ({named[0]}) than the prepared data ({named[1]})')

  @functools.cached_property
  def _apply(self):
    def probabilities(variables, inputs):
      logits = self.program.model.apply(variables, inputs, train=False)
      return jax.nn.softmax(logits)
    return jax.jit(probabilities)

  def _probabilities(self, split):
    """Returns float32 [N, C], computed batch by batch."""
    variables = {'params': self.params, **self.constants}
    objective = self.program.objective
    found = [
        jax.device_get(self._apply(variables, objective.inputs(batch)))
        for batch in batches.eval_batches(
            functools.partial(objective.batch, split), np.arange(len(split)),
            batch_size=self.program.sizes.eval_batch)]
    return np.concatenate(found)[:len(split)]


def load(folder: str | os.PathLike) -> Trained:
  """Returns the model of a run, with the parameters of its test score.

  For an unfinished run these are the best parameters so far. The folder is not
  changed, so a run may be training in it. If the model's file has changed since
  the run began, a message on stderr reports it.

  The folder is a run directory. For other parameters, it is one of its
  checkpoints: `checkpoints/best`, `checkpoints/last` or a step in these. Or it
  is one that `export` wrote, or the name of such a model on Hugging Face's hub,
  see `hub.place`.
  """
  folder = hub.place(folder)
  made, scored, step = restore.scored(folder)
  provenance.warn_of_edits(
      ((place, made.config.model.name, provenance.of_folder(place))
       for place in (folder, *folder.absolute().parents[:3])
       if (place / 'config.json').exists()), provenance.LOADED)
  return Trained(made, scored['params'], scored['constants'], step,
                 restore.data(folder))
