"""Scores the model of a run on validation, test and unseen lengths."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lra.core.errors import UserError
from lra.core.terminal import StopRequest, bar, say
from lra.data import batches, prepared
from lra.data import longer as longer_lib
from lra.run import optim
from lra.run.counters import scored_of
from lra.run.process_cache import step_key
from lra.run.program import Program
from lra.run.step import TrainState
from lra.run.trainer import Trainer, check_finite, finite

Tick = Callable[[Any], bool]  # see `Program.evaluate`


def validate(run: Trainer, state: TrainState, stop: StopRequest) -> bool:
  """Scores the validation split; keeps the best. Returns False after a stop."""
  run.stop_clock()
  split, scored = run.data.splits['val'], scored_of(state)
  if len(split):
    scores = evaluate(run, scored, 'val', stop)
    if scores is None:
      return False
    accuracy = scores.get('accuracy')
    first = '' if accuracy is None else f'accuracy {accuracy:.2%}, '
    say(f'step {run.step}{run.which}: validation {first}loss '
        f'{scores["loss"]:.4f}')
    if run.config.train.mixer_std:
      compiled = run.shared.once(f'mixer_std {step_key(run.program)}',
                                 run.program.compile_mixer_std)
      found = mixer_std(run.program, compiled, scored, split)
      run.directory.log(step=run.step, split='mixer_std', **{
          f'block_{i}': finite(value) for i, value in enumerate(found)})
    run.counters.last_val = scores
    best = run.counters.best_val
    if best is None or run.program.objective.better(scores, best):
      run.counters.best_val, run.counters.best_step = scores, run.step
      run.checkpoints.save_best(run.step, scored)
  run.counters.validated_step = run.step
  return True


def test(run: Trainer, state: TrainState, stop: StopRequest) -> dict | None:
  """Returns the scores of the test split, None after a stop; fills `longer`."""
  run.checkpoints.wait()
  scored = run.counters.chosen(run.program, state, run.checkpoints)
  found = evaluate(run, scored, 'test', stop)
  if found is None:
    return None
  start, key = time.perf_counter(), step_key(run.program)
  try:
    for name, scores in longer(
        run.program, scored,
        lambda text, make: run.shared.once(f'{text} {key}', make),
        lambda shown: _ticks(run, shown, stop)):
      if scores is None:
        return None
      run.longer[name] = scores
  except UserError as e:
    if run.config.protocol == 'state':  # made for these tests
      say(f'{run.title}: no tests of longer sequences: {e}')
  run.counters.eval_seconds += time.perf_counter() - start
  return found


def evaluate(run: Trainer, scored, split: str, stop: StopRequest
             ) -> dict | None:
  """Returns and logs the scores of a split; None after a stop."""
  examples, start = run.data.splits[split], time.perf_counter()
  size = run.program.sizes.eval_batch
  with bar(total=-(-len(examples) // size), what=split,
           unit='batch') as shown:
    scores = score(
        run.program, run.eval_step, scored, examples, _ticks(run, shown, stop),
        run.data.splits['train'] if split == 'test' else None)
  if scores is None:
    return None
  check_finite(scores['loss'])
  seconds = time.perf_counter() - start
  run.counters.eval_seconds += seconds
  numbers = {k: scores[k] for k in ('loss', 'accuracy') if k in scores}
  run.directory.log(
      step=run.step, split=split, **numbers,
      examples_per_s=len(examples) / seconds,
      seconds=run.counters.train_seconds)
  return scores


def _ticks(run, shown, stop):
  def tick(counted):
    shown.update()
    run.wait_behind(counted)
    return not stop.reason
  return tick


def score(made: Program, eval_step: Callable, scored, split: prepared.Split,
          tick: Tick, train: prepared.Split | None = None) -> dict | None:
  """Returns the objective's scores of a split; None if `tick` ended it."""
  counts = made.evaluate(eval_step, scored, split, tick)
  if counts is None:
    return None
  analysis = {} if train is None else made.objective.analysis(
      counts, made.order(split), train, split)
  return made.objective.scores(counts) | analysis


def mixer_std(made: Program, compiled: Callable, scored,
              split: prepared.Split) -> list[float]:
  """Returns `step.mixer_std` of the first evaluation batch of a split."""
  size = made.sizes.eval_batch
  batch = next(batches.eval_batches(
      functools.partial(made.objective.batch, split), np.arange(len(split)),
      batch_size=size, seed=made.config.seed, rows=made.rows(size)))
  return [float(value) for value in compiled(
      scored['params'], scored['constants'], made.put(batch, micro=False))]


def longer(made: Program, scored, once: Callable, ticks: Callable[[Any], Tick]
           ) -> Iterator[tuple[str, dict | None]]:
  """Yields (name, scores or None) of tests of other lengths, as '40-256'."""
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
  """Returns the program that the config describes for `length` tokens."""
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
