"""One optimizer step out of many microbatches; one evaluation step.

Both are pure functions of arrays, compiled once by the caller.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

INIT, DROPOUT = 0, 1  # random streams


@flax.struct.dataclass
class TrainState:
  """All that a run needs to go on.

  Attributes:
    step: int32 [], updates made.
    params: float32 parameters.
    variables: the model's other collections (constants, running statistics).
    opt_state: the optimizer's.
    sums: loss, correct and weight summed since the last log point.
  """
  step: jax.Array
  params: Any
  variables: Mapping[str, Any]
  opt_state: optax.OptState
  sums: dict[str, jax.Array]


def zero_sums() -> dict[str, np.ndarray]:
  return {k: np.zeros((), np.float32) for k in ('loss', 'correct', 'weight')}


def stream(seed, name: int):
  """The key of a random stream; keys are derived from it, never stored."""
  return jax.random.fold_in(jax.random.key(seed), name)


def init_state(model: nn.Module, tx, seed: int, tokens) -> TrainState:
  """Fresh parameters, drawn from `seed`, for ids shaped like `tokens`."""
  variables = dict(model.init(stream(seed, INIT), tokens, train=False))
  params = variables.pop('params')
  return TrainState(
      step=jnp.zeros((), jnp.int32), params=params, variables=variables,
      opt_state=tx.init(params), sums=zero_sums())


def weighted_loss(logits_BxC, labels_B, weights_B):
  """Sums of cross entropy (nats) and of correct answers, float32 []."""
  loss_B = optax.softmax_cross_entropy_with_integer_labels(
      logits_BxC, labels_B)
  correct_B = jnp.argmax(logits_BxC, axis=-1) == labels_B
  return jnp.sum(loss_B * weights_B), jnp.sum(correct_B * weights_B)


def batch_gradient(model, params, variables, batch, key):
  """Gradient of a batch given as microbatches, as if it were one.

  Losses and gradients of the microbatches are summed, then divided once by
  the summed weights; each microbatch has a dropout key of its own.

  Args:
    model: ids to logits.
    params: float32 parameters.
    variables: the model's other collections.
    batch: tokens [N, B, ...], labels [N, B] and weights [N, B] of N
      microbatches.
    key: random key of this step.

  Returns:
    (gradient, variables, sums of loss, correct and weight).
  """
  mutable = [c for c in variables if c == 'stats']

  def loss(params, variables, micro, key):
    logits, updated = model.apply(
        {'params': params, **variables}, micro['tokens'], train=True,
        rngs={'dropout': key}, mutable=mutable)
    total, correct = weighted_loss(logits, micro['labels'], micro['weights'])
    sums = {'loss': total, 'correct': correct,
            'weight': jnp.sum(micro['weights'])}
    return total, ({**variables, **updated}, sums)

  def add(carry, item):
    grads, variables, sums = carry
    index, micro = item
    new, (variables, more) = jax.grad(loss, has_aux=True)(
        params, variables, micro, jax.random.fold_in(key, index))
    return (jax.tree.map(jnp.add, grads, new), variables,
            jax.tree.map(jnp.add, sums, more)), None

  start = (jax.tree.map(jnp.zeros_like, params), variables, zero_sums())
  count = batch['labels'].shape[0]
  (grads, variables, sums), _ = jax.lax.scan(
      add, start, (jnp.arange(count), batch))
  grads = jax.tree.map(lambda g: g / sums['weight'], grads)
  return grads, variables, sums


def train_step(model, tx, state: TrainState, batch, seed):
  """One update; `batch` as in `batch_gradient`, `seed` int32 [].

  Returns:
    (state, step): the number of updates made stands apart too, as what a
    caller can wait for after the state went on into the next update.
  """
  key = jax.random.fold_in(stream(seed, DROPOUT), state.step)
  grads, variables, sums = batch_gradient(
      model, state.params, state.variables, batch, key)
  updates, opt_state = tx.update(grads, state.opt_state, state.params)
  state = TrainState(
      step=state.step + 1, variables=variables, opt_state=opt_state,
      params=optax.apply_updates(state.params, updates),
      sums=jax.tree.map(jnp.add, state.sums, sums))
  return state, state.step


def eval_step(model, params, variables, batch, num_classes: int):
  """Confusion counts of a batch, int32 [C, C] (true, predicted), and loss.

  Examples of weight 0 (the filling of the last batch) are not counted.
  """
  logits = model.apply(
      {'params': params, **variables}, batch['tokens'], train=False)
  loss, _ = weighted_loss(logits, batch['labels'], batch['weights'])
  predicted_B = jnp.argmax(logits, axis=-1)
  cell_B = batch['labels'] * num_classes + predicted_B
  counts = jnp.zeros((num_classes**2,), jnp.int32).at[cell_B].add(
      (batch['weights'] > 0).astype(jnp.int32))
  return counts.reshape(num_classes, num_classes), loss
