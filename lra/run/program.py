"""Compiles the steps of an experiment for its devices."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from lra import kernels
from lra.core import jax_settings
from lra.core.errors import Impossible, UserError
from lra.data import batches, prepared
from lra.objectives import Objective
from lra.run import mesh, optim, step
from lra.run import sizes as sizes_lib
from lra.run.experiment import Experiment

# How many batches may be dispatched before the first of them is done. This is
# enough to hide the time to make a batch. A stop then takes a step or two.
AHEAD = 2
# Platform -> XLA's options. Without this one, matmuls that share an operand
# become one, whose other operands are first copied side by side in memory.
OPTIONS = {'gpu': {'xla_gpu_dot_merger_threshold_mb': 0}}


@dataclasses.dataclass(frozen=True)
class Program:
  """Makes the states and the compiled steps that training uses.

  Attributes:
    model: maps the objective's inputs to its outputs.
    mesh: the devices, from `lra.run.mesh.make`.
    dtype: the compute dtype, 'float32' or 'bfloat16'.
    sizes: the batch sizes that steps are compiled for.
  """
  experiment: Experiment
  model: Any
  mesh: Any
  dtype: str
  sizes: sizes_lib.Sizes

  @property
  def config(self):
    return self.experiment.config

  @property
  def objective(self) -> Objective:
    return self.experiment.objective

  def init(self) -> step.TrainState:
    """Returns a fresh state for `config.seed`."""
    shardings = jax.tree.map(lambda x: x.sharding, self.state_shape)
    with jax.set_mesh(self.mesh):
      return jax.jit(self._init, out_shardings=shardings)(self.config.seed)

  def _init(self, seed):
    batch = {name: jnp.ones(shape, dtype) for name, (shape, dtype) in
             self.objective.shapes(sizes_lib.devices(self.mesh)).items()}
    return step.init_state(
        self.model, self.objective, optim.make(self.config), seed,
        self.objective.inputs(batch))

  @functools.cached_property
  def state_shape(self) -> step.TrainState:
    try:
      shapes = jax.eval_shape(self._init, 0)
      sizes_lib.check_state(shapes, sizes(shapes.params),
                            self.config.encoder.width, self.mesh)
    except UserError as e:
      raise Impossible(str(e)) from e
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=mesh.of_state(self.mesh, x.shape)),
        shapes)

  @property
  def all_lengths(self) -> tuple[int, ...]:
    """`Experiment.lengths` on a CPU; on a GPU, a choice would make it wait."""
    lengths = self.experiment.lengths
    return lengths if sizes_lib.is_cpu(self.mesh) else lengths[-1:]

  @property
  def lengths(self) -> tuple[int, ...]:
    """Lengths of batches on this mesh: one if devices wait for one another."""
    together = self.mesh.size > self.mesh.shape['data']
    return self.all_lengths[-1:] if together else self.all_lengths

  def batch_shardings(self, *, micro: bool) -> dict[str, NamedSharding]:
    return {name: mesh.of_examples(
        self.mesh, micro=micro, between=(
            len(shape) - 2 if name in self.objective.of_tokens else None))
            for name, (shape, _) in self.shapes(1, micro=micro).items()}

  def shapes(self, *lead: int, micro: bool
             ) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Returns shape and dtype of each array of a batch with first axes `lead`.
    """
    place = {'place': (lead, np.dtype(np.int32))} if micro else {}
    return self.objective.shapes(*lead) | place

  def rows(self, size: int) -> slice:
    return mesh.rows(self.mesh, size)

  def put(self, batch, *, micro: bool):
    return mesh.joined(
        batch, self.batch_shardings(micro=micro),
        self.sizes.microbatch if micro else self.sizes.eval_batch,
        axis=int(micro))

  def put_given(self):
    """Puts the seed and `optim.numbers` on the devices."""
    return mesh.everywhere(self._given, self._replicated)

  @property
  def _given(self):
    return {'seed': np.int32(self.config.seed), **optim.numbers(self.config)}

  def reset_sums(self, state: step.TrainState) -> step.TrainState:
    return state.replace(sums=mesh.everywhere(
        step.zero_sums(self.objective), self._replicated))

  def compile_train(self):
    """Compiles `step.train_step`, which donates the state."""
    micro = self.sizes.microbatch
    given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=self._replicated), self._given)
    return self._compile(
        functools.partial(step.train_step, self.model, self.objective,
                          at=self.lengths),
        self.state_shape,
        self._batch_shape(self.config.train.batch_size // micro, micro), given,
        donate_argnums=0,
        out=(jax.tree.map(lambda x: x.sharding, self.state_shape),
             self._replicated))

  def compile_eval(self):
    return self._compile_scored(step.eval_step, at=self.lengths)

  def compile_mixer_std(self):
    return self._compile_scored(step.mixer_std)

  def _compile_scored(self, function, **options):
    return self._compile(
        functools.partial(function, self.model, self.objective, **options),
        self.state_shape.params, self.state_shape.constants,
        self._batch_shape(self.sizes.eval_batch))

  def compile_norm(self):
    return self._compile(optim.global_norm, self.state_shape.params)

  def fit_train(self) -> tuple['Program', Any]:
    """Returns the program with the largest microbatch that fits, and its step.
    """
    return self._fit('microbatch', self.config.train.microbatch_size,
                     Program.compile_train, 'Training',
                     sizes_lib.unit(self.config, self.mesh))

  def fit_eval(self) -> tuple['Program', Any]:
    """Returns the same for `eval_batch` and `compile_eval`."""
    return self._fit('eval_batch', self.config.train.eval_batch_size,
                     Program.compile_eval, 'Evaluation',
                     sizes_lib.devices(self.mesh))

  def _fit(self, name, named, compile_it, what, share):
    if named:
      return self, compile_it(self)
    size, compiled = sizes_lib.fitting(
        lambda size: compile_it(self.sized(**{name: size})),
        getattr(self.sizes, name), share, sizes_lib.budget(self.mesh), what)
    return self.sized(**{name: size}), compiled

  def sized(self, **sizes: int) -> 'Program':
    other = dataclasses.replace(
        self, sizes=dataclasses.replace(self.sizes, **sizes))
    other.__dict__['state_shape'] = self.state_shape  # sizes do not change it
    return other

  def order(self, split: prepared.Split) -> np.ndarray:
    """Returns the order in which examples are evaluated, int [N]."""
    if len(self.lengths) == 1:
      return np.arange(len(split))
    return np.argsort(prepared.lengths(split), kind='stable')

  def evaluate(self, eval_step: Callable, scored, split: prepared.Split,
               tick: Callable[[Any], bool] = lambda counted: True
               ) -> list | None:
    """Returns counts for `Objective.scores`, of every example in its `order`.

    If `tick` of the counts of a dispatched batch is False, it returns None.
    """
    counts, size = [], self.sizes.eval_batch
    for batch in batches.eval_batches(
        functools.partial(self.objective.batch, split), self.order(split),
        batch_size=size, seed=self.config.seed, rows=self.rows(size)):
      counts.append(eval_step(
          scored['params'], scored['constants'], self.put(batch, micro=False)))
      if not tick(counts[-1]):
        return None
      if len(counts) > AHEAD:
        jax.block_until_ready(counts[-1 - AHEAD])
    return jax.device_get(counts)  # one transfer: no batch waits for the host

  def _compile(self, function, *shapes, donate_argnums=(), out=None):
    with jax.set_mesh(self.mesh):
      compiled = jax.jit(
          function, donate_argnums=donate_argnums,
          out_shardings=out or self._replicated).lower(*shapes).compile(
              compiler_options=OPTIONS.get(kernels.platform()))
    sizes_lib.check_compiled(compiled, self.mesh)
    return compiled

  @property
  def _replicated(self):
    return NamedSharding(self.mesh, P())

  def _batch_shape(self, *lead):
    micro = len(lead) == 2
    shardings = self.batch_shardings(micro=micro)
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=shardings[name])
            for name, (shape, dtype) in self.shapes(*lead, micro=micro).items()}


def make(experiment: Experiment, devices=None, dtype: str | None = None,
         before: dict | None = None) -> Program:
  """Makes the program of an experiment on some devices, by default on all.

  It also fixes JAX's settings for the rest of the process. `dtype` replaces
  that of the experiment; for `before` see `sizes.wanted`.
  """
  jax_settings.fix()
  config, dtype = experiment.config, dtype or experiment.dtype
  over = mesh.make(config.mesh, devices)
  mesh.check(experiment, over.shape)
  sizes = sizes_lib.wanted(config, over, before)
  sizes_lib.check_batches(experiment, over, sizes)
  return Program(experiment, experiment.model(dtype), over, dtype, sizes)


def timed(function, *args):
  start = time.perf_counter()
  result = function(*args)
  return result, time.perf_counter() - start


def count_parameters(state: step.TrainState) -> dict[str, int]:
  numbers = sizes(state.params)
  return {'num_params': sum(numbers.values()),
          'mixer_params': sum(
              n for name, n in numbers.items() if '/mixer/' in name)}


def sizes(params) -> dict[str, int]:
  """Returns name -> number of entries, for a tree of arrays or shapes."""
  return {name: int(np.prod(x.shape))
          for name, x in optim.named(params).items()}
