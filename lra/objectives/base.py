"""Base class of objectives."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra.core.tasks import Task
from lra.data.prepared import Split
from lra.nn.encoder import Encoder


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
  """A loss, its metrics and its output head for a task.

  A batch is a dict of arrays with the examples on axis 0. It holds the model's
  `inputs` and `weights` float32 [B, ...]. Positions of weight 0 are neither
  trained on nor counted.

  Attributes:
    config: a checked config.
    task: the task of the config.
    seq_len: L, tokens per sequence without CLS.
    sums: names of further sums that `loss` returns.
    of_tokens: names of the arrays with tokens on their last axis; a batch may
      lack some of them.
    supervised: whether the labels are those of the task, so that its baselines
      compare.
  """
  config: Any
  task: Task
  seq_len: int
  sums: ClassVar[tuple[str, ...]] = ('loss',)
  of_tokens: ClassVar[tuple[str, ...]] = ('tokens',)
  supervised: ClassVar[bool] = True

  @property
  def num_classes(self) -> int:
    """C, the number of classes that the model scores."""
    return self.task.num_classes

  def check(self, encoder: Encoder) -> None:
    """Raises UserError if the objective does not fit the task or encoder."""
    del encoder

  @abc.abstractmethod
  def model(self, encoder: Encoder, dtype) -> nn.Module:
    """Returns the whole model; call it as `model(inputs, train=...)`."""

  @abc.abstractmethod
  def batch(self, split: Split, indices: np.ndarray, *, seed: int,
            step: int) -> dict[str, np.ndarray]:
    """Returns examples `indices`, int [B], of a split; a pure function.

    The arrays of an example must not depend on the other examples, because each
    of several processes makes its part of a batch. Training steps count from 0;
    in evaluation they are -1, -2, ...
    """

  @abc.abstractmethod
  def shapes(self, *lead: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Returns shape and dtype of each array of a batch, after axes `lead`."""

  def inputs(self, batch: Mapping[str, Any]):
    """Returns the part of a batch that the model reads."""
    return batch['tokens']

  def used(self, batch) -> jax.Array:
    """Returns the length beyond which all tokens are padding, int32 []."""
    tokens = batch['tokens']
    return jnp.max(jnp.where(
        tokens != 0, 1 + jnp.arange(tokens.shape[-1], dtype=jnp.int32), 0))

  def cut(self, batch, length: int):
    """Returns the batch cut to the first `length` tokens of each sequence."""
    return {name: array[..., :length] if name in self.of_tokens else array
            for name, array in batch.items()}

  @abc.abstractmethod
  def loss(self, outputs, batch) -> dict[str, Any]:
    """Returns sums over a batch, float32 [] each: `loss`, `weight` and `sums`.

    A training step minimises the sum of `loss` divided by the sum of `weight`,
    both over all its microbatches.
    """

  @abc.abstractmethod
  def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
    """Returns the mean `loss` and others, from added up results of `loss`."""

  @abc.abstractmethod
  def count(self, outputs, batch) -> Any:
    """Returns the counts of a batch for `scores`, as small arrays."""

  @abc.abstractmethod
  def scores(self, counts: Sequence[Any]) -> dict[str, Any]:
    """Returns the mean `loss` and other scores of a split, as JSON values."""

  def label_entropy(self, train: Split) -> float | None:
    """Returns the entropy of the training labels, in nats.

    This is the loss of a model that knows only how frequent classes are. It is
    None if the loss is no cross entropy of classes.
    """
    del train

  def analysis(self, counts: Sequence[Any], order: np.ndarray, train: Split,
               test: Split) -> dict[str, Any]:
    """Returns further results on the test split, as JSON values.

    `counts` are those of all examples of `test`, in this `order`, int [N].
    """
    return {}

  @abc.abstractmethod
  def better(self, scores: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Returns whether validation `scores` are better than the `best` so far."""
