"""Scores a trained model on sequences of lengths that it has not seen."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from lra.core.errors import UserError
from lra.data import prepared
from lra.run import optim
from lra.run.program import Program


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
  fixed = _differing(made.state_shape, other.state_shape)
  if fixed:
    raise UserError(
        f'{before.config.model.name} cannot read {length} tokens after '
        f'training on {made.objective.seq_len}: the size of its {fixed} is the '
        'length. Choose shorter sequences.')
  return other


def _differing(state, other) -> str:
  """Returns the first parameter or constant whose shape differs, or ''."""
  for part in ('params', 'constants'):
    shapes = [{optim.path_name(path): leaf.shape for path, leaf
               in jax.tree_util.tree_leaves_with_path(getattr(s, part))}
              for s in (state, other)]
    for name in sorted({*shapes[0], *shapes[1]}):
      if shapes[0].get(name) != shapes[1].get(name):
        return name
  return ''


def score(made: Program, eval_step: Callable, scored, split: prepared.Split,
          tick: Callable[[Any], bool] = lambda counted: True) -> dict | None:
  """Scores a further test.

  Args:
    made, eval_step: result of `at_length(...).fit_eval()`.
    scored: `params` and `constants` of the model.
    split: the test, from `longer.split`.
    tick: see `Program.evaluate`.

  Returns:
    JSON fields of `records.scores.LongerScores`; None if `tick` ended it.
  """
  counts = made.evaluate(eval_step, scored, split, tick)
  if counts is None:
    return None
  scores = made.objective.scores(counts)
  return {'examples': len(split), 'accuracy': scores['accuracy'],
          'loss': scores['loss']}
