"""The contract of an objective."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra.data.prepared import Split
from lra.nn.encoder import Encoder
from lra.tasks import Task


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
  """What a model is trained for on a task.

  A batch is a dict of arrays with the examples along axis 0. It holds what the
  model reads (`inputs`), and `weights` float32 [B, ...], which are 0 where
  nothing is to be learnt or counted.

  Attributes:
    config: a checked config.
    task: its task.
    seq_len: L, tokens per sequence without CLS.
    sums: names of what `loss` sums up besides `weight`.
    of_tokens: names of the arrays whose last axis are the tokens.
  """
  config: Any
  task: Task
  seq_len: int
  sums: ClassVar[tuple[str, ...]] = ('loss',)
  of_tokens: ClassVar[tuple[str, ...]] = ('tokens',)

  @abc.abstractmethod
  def model(self, encoder: Encoder, dtype) -> nn.Module:
    """The whole model: called as `model(inputs, train=...)`."""

  @abc.abstractmethod
  def batch(self, split: Split, indices: np.ndarray, *, seed: int,
            step: int) -> dict[str, np.ndarray]:
    """Examples `indices` of a split as arrays; a pure function.

    What it makes of an example must not depend on the others: of several
    processes each makes a part of a batch.

    Args:
      split: the examples.
      indices: int [B].
      seed: the run's seed, for what is drawn for a batch.
      step: the step (from 0) whose batch it is; -1, -2, ... in evaluation.
    """

  @abc.abstractmethod
  def shapes(self, *lead: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each array of a batch whose first axes are `lead`."""

  def inputs(self, batch: Mapping[str, Any]):
    """What of a batch the model reads."""
    return batch['tokens']

  def used(self, batch) -> jax.Array:
    """int32 []: the length at which nothing but padding is cut off."""
    tokens = batch['tokens']
    return jnp.max(jnp.where(
        tokens > 0, 1 + jnp.arange(tokens.shape[-1], dtype=jnp.int32), 0))

  def cut(self, batch, length: int):
    """The batch with the sequences' first `length` tokens."""
    return {**batch, **{
        name: batch[name][..., :length] for name in self.of_tokens}}

  @abc.abstractmethod
  def loss(self, outputs, batch) -> dict[str, Any]:
    """Sums over a batch, float32 [] each: `loss`, `weight` and `sums`.

    A step minimises the sum of `loss` over its microbatches divided by that of
    `weight`.
    """

  @abc.abstractmethod
  def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
    """What is logged of training sums: `loss`, a mean, and others."""

  @abc.abstractmethod
  def count(self, outputs, batch) -> Any:
    """What evaluation keeps of a batch: arrays, the smaller the better."""

  @abc.abstractmethod
  def scores(self, counts: Sequence[Any]) -> dict[str, Any]:
    """Scores of a split from the counts of its batches; JSON values.

    `loss`, a mean, and whatever else is worth keeping; numbers only are
    logged.
    """

  def analysis(self, counts: Sequence[Any], order: np.ndarray, train: Split,
               test: Split) -> dict[str, Any]:
    """What else a result says of the test split; JSON values.

    Args:
      counts: of all examples of `test`.
      order: int [N], which of them they count, one after the other.
      train: the examples that were learnt from.
      test: those that were scored.
    """
    del counts, order, train, test
    return {}

  @abc.abstractmethod
  def better(self, scores: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Whether `scores` of a validation beat the best ones so far."""
