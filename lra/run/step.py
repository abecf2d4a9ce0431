"""Makes one optimizer step from many microbatches, or one evaluation step.

All functions are pure functions of arrays; the caller compiles them once.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from lra.nn import draws
from lra.nn.encoder import MIXER_STD
from lra.nn.norm import STATS
from lra.objectives.base import Objective
from lra.run import mesh, optim

INIT, DROPOUT = 0, 1  # random streams


@flax.struct.dataclass
class TrainState:
  """Holds all that a run needs to resume.

  Attributes:
    step: int32 [], updates made.
    constants: the model's other collections. They are never changed, except
      STATS, the running statistics of batch norms.
    ema: moving average of the parameters, None if there is none.
    sums: the objective's sums since the last log point.
  """
  step: jax.Array
  params: Any
  constants: Mapping[str, Any]
  opt_state: optax.OptState
  ema: Any
  sums: dict[str, jax.Array]


def zero_sums(objective: Objective) -> dict[str, np.ndarray]:
  return {k: np.zeros((), np.float32) for k in (*objective.sums, 'weight')}


def stream(seed, name: int):
  """Returns the key of a random stream; it is derived, never stored."""
  return jax.random.fold_in(jax.random.key(seed), name)


def init_state(model: nn.Module, objective: Objective, tx, seed,
               inputs) -> TrainState:
  constants = dict(model.init(stream(seed, INIT), inputs, train=False))
  params = constants.pop('params')
  ema = jax.tree.map(jnp.copy, params) if objective.config.optim.ema else None
  return TrainState(
      step=jnp.zeros((), jnp.int32), params=params, constants=constants,
      opt_state=tx.init(params), ema=ema, sums=zero_sums(objective))


def train_step(model, objective: Objective, state: TrainState, batch, given,
               at: tuple[int, ...] = ()):
  """Makes one update; returns (state, `optim.gradient_norm`, float32 []).

  A caller can wait for the norm after the next update has consumed the state.
  `given` are `seed`, int32 [], and the values of `optim.numbers`.
  """
  key = jax.random.fold_in(stream(given['seed'], DROPOUT), state.step)
  grads, sums, stats = batch_gradient(
      model, objective, state.params, state.constants, batch, key, at)
  grads, norm = optim.gradient_norm(objective.config, grads)
  updates, opt_state = optim.make(objective.config, given).update(
      grads, state.opt_state, state.params, norm=norm)
  params = optax.apply_updates(state.params, updates)
  decay = objective.config.optim.ema
  ema = state.ema
  if decay:
    ema = optax.incremental_update(params, state.ema, 1 - decay)
  return TrainState(
      step=state.step + 1, params=params,
      constants={**state.constants, **stats}, opt_state=opt_state, ema=ema,
      sums=jax.tree.map(jnp.add, state.sums, sums)), norm


def batch_gradient(model, objective: Objective, params, constants, batch, key,
                   at: tuple[int, ...] = ()):
  """Computes the gradient of a batch that is given as microbatches.

  Losses and gradients of the microbatches are summed, then divided once by the
  summed weights. So the result is that of one large batch. The random numbers
  of an example depend on its place in the batch, see `lra.nn.draws`. Devices
  along `data` of the current mesh each sum up their own examples of all
  microbatches. They communicate once, after the last microbatch; batch norms
  whose examples are on several devices communicate too.

  Args:
    batch: the objective's arrays [N, B, ...] of N microbatches, and `place`,
      int32 [N, B].
    at: lengths that a microbatch may be computed at, see `at_fitting`.

  Returns:
    (gradient, the objective's sums, the updated collection STATS by name).
  """

  def own(params, constants, batch, key):
    """Returns sums over local examples, and the mean of the new statistics."""

    def apply(params, micro, keys=None, **options):
      drawn = {draws.KEYS: keys} if keys else {}
      return model.apply({'params': params, **constants, **drawn},
                         objective.inputs(micro), train=True, **options)

    kept = {STATS: constants[STATS]} if STATS in constants else {}

    @functools.partial(jax.grad, has_aux=True)
    def gradient(params, micro, keys):
      # Modules of other libraries use one key for the whole microbatch.
      whole = jax.random.fold_in(key, micro['place'][0])
      outputs, stats = apply(params, micro, keys, mutable=[*kept],
                             rngs={'dropout': whole, draws.STEP: key})
      sums = objective.loss(outputs, micro)
      return sums['loss'], (sums, dict(stats))

    def add(carry, micro):
      grads, *added = carry
      keys = draws.of_step(
          functools.partial(apply, params, micro), key, micro['place'])
      new, more = at_fitting(
          functools.partial(gradient, params), objective, at, micro, keys)
      return (mesh.keep_split(jax.tree.map(jnp.add, grads, new), mesh.FSDP),
              *jax.tree.map(jnp.add, tuple(added), more)), None

    start = (mesh.keep_split(jax.tree.map(jnp.zeros_like, params), mesh.FSDP),
             zero_sums(objective), jax.tree.map(jnp.zeros_like, kept))
    grads, sums, stats = jax.lax.scan(add, start, batch)[0]
    times = len(batch['place']) * (
        1 if devices.empty else devices.shape[mesh.DATA])
    return grads, sums, jax.tree.map(lambda x: x / times, stats)

  summed, devices = own, jax.sharding.get_abstract_mesh()
  if not devices.empty and devices.shape[mesh.DATA] > 1:
    summed = jax.shard_map(
        lambda *args: jax.lax.psum(own(*args), mesh.DATA),
        in_specs=(P(), P(), P(None, mesh.DATA), P()), out_specs=P(),
        axis_names={mesh.DATA}, check_vma=False)
  grads, sums, stats = summed(params, constants, batch, key)
  grads = jax.tree.map(lambda g: g / sums['weight'], grads)
  return mesh.keep_split(grads, mesh.FSDP, mesh.SEQUENCE_AXIS), sums, stats


def eval_step(model, objective: Objective, params, constants, batch,
              at: tuple[int, ...] = ()):
  """Returns `Objective.count` of a batch, the objective's arrays [B, ...]."""

  def count(batch):
    outputs = model.apply(
        {'params': params, **constants}, objective.inputs(batch), train=False)
    return objective.count(outputs, batch)

  return at_fitting(count, objective, at, batch)


def mixer_std(model, objective: Objective, params, constants, batch):
  """Returns the standard deviation of each mixer's output, float32 [layers].

  It is over the tokens and channels of the batch, without padding.
  """
  _, kept = model.apply(
      {'params': params, **constants}, objective.inputs(batch), train=False,
      mutable=[MIXER_STD])
  layers = {}
  for path, value in jax.tree_util.tree_leaves_with_path(kept[MIXER_STD]):
    block = re.search(r'block_(\d+)', jax.tree_util.keystr(path))
    layers.setdefault(int(block[1]), []).append(value)
  return jnp.sqrt(jnp.stack([
      jnp.mean(jnp.square(jnp.stack(layers[i]))) for i in sorted(layers)]))


def at_fitting(function: Callable, objective: Objective,
               lengths: tuple[int, ...], batch, *args) -> Any:
  """Returns function(batch, *args), with the batch cut to a fitting length.

  Only padding is cut, so results are equal; their shapes must not depend on the
  length. `lengths` rise up to that of the batch.
  """

  def at(length):
    return lambda batch, *args: function(objective.cut(batch, length), *args)

  if len(lengths) <= 1:
    return function(batch, *args)
  return jax.lax.switch(
      jnp.searchsorted(jnp.array(lengths), objective.used(batch)),
      [at(length) for length in lengths], batch, *args)
