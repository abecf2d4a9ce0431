"""Compares a trained model with its int8 version: accuracy, size and speed."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from lra.board import statistics
from lra.board.statistics import Sample
from lra.core.formats import percent, points
from lra.share import api, int8
from lra.share import measured as studies

SECONDS = 10  # of timing


@dataclasses.dataclass(frozen=True)
class Pair:
  """A trained model and its int8 version, measured; float comes first.

  Attributes:
    trained: the model.
    samples: scores on the test split.
    losses: mean losses, in nats.
    bytes: bytes of the parameters.
    seconds: median seconds per example of a batch.
    ratios: quartiles of the int8 time divided by the float time before it.
  """
  trained: api.Trained
  samples: tuple[Sample, Sample]
  losses: tuple[float, float]
  bytes: tuple[int, int]
  seconds: tuple[float, float]
  ratios: tuple[float, float, float]

  @property
  def only(self) -> tuple[int, int]:
    """Returns how many examples only one of the two has right."""
    a, b = (sample.correct[0] for sample in self.samples)
    return int((a & ~b).sum()), int((b & ~a).sum())

  @property
  def p(self) -> float:
    """Returns the p-value of McNemar's exact test."""
    return statistics.p_value(*self.samples)

  def row(self) -> dict:
    """Returns the row of a table: heading -> value."""
    dtype = self.trained.program.dtype
    float_, int8_ = (sample.accuracies[0] for sample in self.samples)
    return {
        'model': self.trained.config.model.name,
        'task': self.trained.config.task,
        f'accuracy {dtype} %': round(100 * float_, 2),
        'accuracy int8 %': round(100 * int8_, 2),
        'difference (points)': round(100 * (int8_ - float_), 2),
        f'right only in {dtype}': self.only[0],
        'right only in int8': self.only[1],
        'p (McNemar)': round(self.p, 4),
        f'parameters {dtype} (bytes)': self.bytes[0],
        'parameters int8 (bytes)': self.bytes[1],
        f'{dtype} (ms per example)': round(1e3 * self.seconds[0], 4),
        'int8 (ms per example)': round(1e3 * self.seconds[1], 4),
        'time int8 / ' + dtype: round(self.ratios[1], 3),
        'time, quartiles': ' to '.join(
            f'{self.ratios[i]:.3f}' for i in (0, 2)),
        'batch size': self.batch_size}

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

  @property
  def batch_size(self) -> int:
    """Returns the number of examples of a batch."""
    return self.trained.fitted[0].sizes.eval_batch


def measure(folder: pathlib.Path, seconds: float = SECONDS) -> Pair:
  """Scores and times a run's model in float and in int8.

  Args:
    folder: a run directory, a checkpoint or another model of `api.load`.
    seconds: about how long the two are timed, in turns.

  Raises:
    UserError: `api.load`, `api.Trained.answers` or `api.Trained.quantised`
      raises it.
  """
  trained = api.load(folder)
  both = trained, trained.quantised()
  found = [one.answers('test', same_data=True) for one in both]
  data = trained.program.experiment.data()
  times = studies.interleaved(
      [_step(one, data.splits['test']) for one in both], seconds)
  size = trained.fitted[0].sizes.eval_batch
  return Pair(
      trained,
      tuple(Sample((scores['accuracy'],), len(right), right[None])
            for scores, right in found),
      tuple(scores['loss'] for scores, _ in found),
      tuple(int8.num_bytes(one.params) for one in both),
      tuple(float(np.median(one)) / size for one in times),
      studies.quartiles([b / a for a, b in zip(*times, strict=True)]))


def _step(trained, split):
  """Returns a function that evaluates the first batch of a split."""
  made, step = trained.fitted
  size = made.sizes.eval_batch
  batch = made.put(made.objective.batch(
      split, np.arange(size) % len(split), seed=0, step=-1), micro=False)
  return functools.partial(step, *jax.device_put(
      (trained.params, trained.constants)), batch)


def rows(folders: Sequence[str]) -> list[dict]:
  """Measures runs one after another; returns a row of each."""
  return [measure(pathlib.Path(folder)).row() for folder in folders]
