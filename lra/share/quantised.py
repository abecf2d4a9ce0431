"""Compares a trained model with its int8 version: accuracy, size and speed."""

import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from lra.board.statistics import Sample, p_value
from lra.core.formats import percent, points
from lra.share import api, int8

SECONDS = 10  # of timing


@dataclasses.dataclass(frozen=True)
class Pair:
  """A trained model and its int8 version, measured; float comes first.

  `samples` are scores on the test split, `losses` in nats, `bytes` those of the
  parameters, `seconds` medians per example of a batch, `ratios` quartiles of
  the int8 time divided by the float time before it.
  """
  trained: api.Trained
  samples: tuple[Sample, Sample]
  losses: tuple[float, float]
  bytes: tuple[int, int]
  seconds: tuple[float, float]
  ratios: tuple[float, float, float]

  @property
  def only(self) -> tuple[int, int]:
    """Numbers of examples that only one of the two has right."""
    a, b = (sample.correct[0] for sample in self.samples)
    return int((a & ~b).sum()), int((b & ~a).sum())

  @property
  def p(self) -> float:
    """The p-value of McNemar's exact test."""
    return p_value(*self.samples)

  @property
  def batch_size(self) -> int:
    return self.trained.fitted[0].sizes.eval_batch

  def text(self) -> str:
    """Returns the comparison in a few lines."""
    config, dtype = self.trained.config, self.trained.program.dtype
    table = {
        'accuracy %': [percent(s.accuracies[0]) for s in self.samples],
        'loss': [f'{loss:.4f}' for loss in self.losses],
        'bytes of parameters': [f'{size:,}' for size in self.bytes],
        'ms per example': [f'{1e3 * one:.4f}' for one in self.seconds]}
    a, b = (sample.accuracies[0] for sample in self.samples)
    low, middle, high = self.ratios
    return '\n'.join([
        f'{config.model.name} on {config.task}, parameters of step '
        f'{self.trained.step}',
        f'  {"":24}{dtype:>12}{"int8":>12}',
        *(f'  {name:24}{one:>12}{other:>12}'
          for name, (one, other) in table.items()),
        f'int8 - {dtype}: {points(b - a)} points; right in {dtype} only: '
        f'{self.only[0]:,}; in int8 only: {self.only[1]:,}',
        f'p = {self.p:.3g} (McNemar, exact, on the same examples): the two '
        f'{"differ" if self.p < 0.05 else "do not differ"} significantly at '
        '5%.',
        f'time of int8 / time of {dtype}: {middle:.2f} (quartiles {low:.2f} to '
        f'{high:.2f}), in turns on one batch of {self.batch_size}'])


def measure(folder: str | os.PathLike, seconds: float = SECONDS) -> Pair:
  """Scores and times a run's model in float and in int8, for some seconds."""
  trained = api.load(folder)
  both = trained, trained.quantised()
  found = [one.answers('test', same_data=True) for one in both]
  data = trained.program.experiment.data()
  times = interleaved(
      [_step(one, data.splits['test']) for one in both], seconds)
  size = trained.fitted[0].sizes.eval_batch
  return Pair(
      trained,
      tuple(Sample((scores['accuracy'],), len(right), right[None])
            for scores, right in found),
      tuple(scores['loss'] for scores, _ in found),
      tuple(int8.num_bytes(one.params) for one in both),
      tuple(float(np.median(one)) / size for one in times),
      quartiles([b / a for a, b in zip(*times, strict=True)]))


def _step(trained, split):
  """Returns a function that evaluates the first batch of a split."""
  made, step = trained.fitted
  size = made.sizes.eval_batch
  batch = made.put(made.objective.batch(
      split, np.arange(size) % len(split), seed=0, step=-1), micro=False)
  return functools.partial(step, *jax.device_put(
      (trained.params, trained.constants)), batch)


def interleaved(calls: Sequence[Callable], seconds: float, least: int = 5
                ) -> list[list[float]]:
  """Times functions in turns, so that other programs slow all of them alike.

  Each returns arrays of JAX and is called once before. After the `least` first
  rounds no round begins after so many seconds. Returns the seconds of each
  function in each round.
  """
  for call in calls:
    jax.block_until_ready(call())
  found = [[] for _ in calls]
  start = time.perf_counter()
  while len(found[0]) < least or time.perf_counter() - start < seconds:
    for call, times in zip(calls, found, strict=True):
      before = time.perf_counter()
      jax.block_until_ready(call())
      times.append(time.perf_counter() - before)
  return found


def quartiles(numbers: Sequence[float]) -> tuple[float, float, float]:
  """Returns the first quartile, the median and the third quartile."""
  low, middle, high = statistics.quantiles(numbers, n=4, method='inclusive')
  return low, middle, high
