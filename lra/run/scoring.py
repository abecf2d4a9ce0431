"""Scores a model on a split, or on sequences of lengths that it has not seen.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lra.core.errors import UserError
from lra.core.terminal import bar
from lra.data import batches, prepared
from lra.data import longer as longer_lib
from lra.run import optim
from lra.run.program import Program

Tick = Callable[[Any], bool]  # see `Program.evaluate`


def score(made: Program, eval_step: Callable, scored, split: prepared.Split,
          tick: Tick, train: prepared.Split | None = None) -> dict | None:
  """Returns the objective's scores of a split; None if `tick` ended it.

  For the arguments see `Program.evaluate`. The training examples `train` add
  the objective's analysis.
  """
  counts = made.evaluate(eval_step, scored, split, tick)
  if counts is None:
    return None
  analysis = {} if train is None else made.objective.analysis(
      counts, made.order(split), train, split)
  return made.objective.scores(counts) | analysis


def mixer_std(made: Program, compiled: Callable, scored,
              split: prepared.Split) -> list[float]:
  """Returns the standard deviation of each mixer's output, by layer.

  It is over the first evaluation batch of a split. `compiled` is the result of
  `compile_mixer_std`.
  """
  size = made.sizes.eval_batch
  batch = next(batches.eval_batches(
      functools.partial(made.objective.batch, split), np.arange(len(split)),
      batch_size=size, seed=made.config.seed, rows=made.rows(size)))
  return [float(value) for value in compiled(
      scored['params'], scored['constants'], made.put(batch, micro=False))]


def longer(made: Program, scored, once: Callable, ticks: Callable[[Any], Tick]
           ) -> Iterator[tuple[str, dict | None]]:
  """Yields name and scores of the task's generated tests of other lengths.

  A name is such as '40-256'. The scores are those of `at_other_length`, None
  after a stop. It raises UserError as `at_length`.

  Args:
    made: the program of training.
    scored: `params` and `constants` of the model.
    once: (text, make) -> make(), which runs with this text share.
    ticks: makes the function for `Program.evaluate` from a bar.
  """
  for name in made.objective.task.longer:
    split = longer_lib.split(made.objective.task.name, name)
    longest = int(prepared.lengths(split).max())
    other, eval_step = once(
        f'{longest} tokens',
        lambda longest=longest: at_length(made, longest).fit_eval())
    with bar(total=None, what=f'{name} tokens', unit='batch') as shown:
      scores = at_other_length(
          other, eval_step, scored, split, ticks(shown))
    yield name, scores


def at_other_length(made: Program, eval_step: Callable, scored,
                    split: prepared.Split,
                    tick: Tick = lambda counted: True) -> dict | None:
  """Returns the JSON fields of `schema.scores.LongerScores`; see `score`."""
  scores = score(made, eval_step, scored, split, tick)
  return scores and {'examples': len(split), **{
      name: scores[name] for name in ('accuracy', 'loss')}}


def at_length(made: Program, length: int) -> Program:
  """Returns a program for sequences of up to `length` tokens.

  Parameters must have the same shapes at both lengths. The model is the one
  that the config describes at that length: positions go on, and factors that
  depend on the length are those of the new one.

  Raises:
    UserError: shapes of parameters depend on the length; names one of them.
  """
  if length <= made.objective.seq_len:
    return made
  before = made.experiment
  experiment = dataclasses.replace(
      before, encoder=before.encoder.clone(full_length=length),
      objective=dataclasses.replace(made.objective, seq_len=length))
  share = made.mesh.shape['data'] * made.mesh.shape['fsdp']
  batch = made.sizes.eval_batch * made.objective.seq_len // length
  other = dataclasses.replace(
      made, experiment=experiment, model=experiment.model(made.dtype),
      sizes=dataclasses.replace(
          made.sizes, eval_batch=max(batch // share, 1) * share))
  for part in ('params', 'constants'):
    ours, theirs = ({name: x.shape for name, x in optim.named(
        getattr(p.state_shape, part)).items()} for p in (made, other))
    for name in sorted({**ours, **theirs}):
      if ours.get(name) != theirs.get(name):
        raise UserError(
            f'{before.config.model.name} cannot read {length} tokens after '
            f'training on {made.objective.seq_len}: the size of its {name} is '
            'the length. Choose shorter sequences.')
  return other
