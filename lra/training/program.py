"""Compiles the training and evaluation steps of a config for its devices."""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from lra import objectives, tasks
from lra.experiment import build, check
from lra.system import jax_settings
from lra.training import fits, mesh, optim, step
from lra.training import sizes as sizes_lib


@dataclasses.dataclass(frozen=True)
class Program:
  """Makes the states and the compiled steps that training uses.

  Attributes:
    config: a checked config.
    objective: its objective.
    model: maps the objective's inputs to its outputs.
    tx: the optimizer.
    mesh: the devices, from `lra.training.mesh.make`.
    dtype: the compute dtype, 'float32' or 'bfloat16'.
    sizes: the batch sizes that steps are compiled for.
  """
  config: Any
  objective: objectives.Objective
  model: Any
  tx: Any
  mesh: Any
  dtype: str
  sizes: sizes_lib.Sizes

  def init(self) -> step.TrainState:
    """Returns a fresh state for `config.seed`."""
    shardings = jax.tree.map(lambda x: x.sharding, self.state_shape)
    with jax.set_mesh(self.mesh):
      return jax.jit(self._init, out_shardings=shardings)(self.config.seed)

  @functools.cached_property
  def state_shape(self) -> step.TrainState:
    """Shapes, dtypes and shardings of a state.

    Raises:
      UserError: the state does not fit into memory.
    """
    shapes = jax.eval_shape(self._init, 0)
    fits.check_state(shapes, sizes(shapes.params),
                     self.config.encoder.width, self.mesh)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=mesh.of_state(self.mesh, x.shape)),
        shapes)

  @property
  def all_lengths(self) -> tuple[int, ...]:
    """Lengths from `build.lengths`; several on a CPU only.

    If there are several, examples are sorted by length. On a GPU a choice
    between lengths makes the host wait for the device. One whole batch is as
    long as its longest example, too.
    """
    lengths = build.lengths(self.config, self.objective.task)
    return lengths if sizes_lib.is_cpu(self.mesh) else lengths[-1:]

  @property
  def lengths(self) -> tuple[int, ...]:
    """Lengths that batches are computed at.

    There are several only if the mesh splits just examples, over `data`:
    devices that wait for one another must choose the same length.
    """
    lengths = self.all_lengths
    together = self.mesh.size > self.mesh.shape['data']
    return lengths[-1:] if together else lengths

  def batch_shardings(self, *, micro: bool) -> dict[str, NamedSharding]:
    """Returns the sharding of each array of a batch, by name.

    Args:
      micro: true for microbatches, [N, B, ...]; false for [B, ...].
    """
    return {name: mesh.of_examples(
        self.mesh, micro=micro, between=(
            len(shape) - 2 if name in self.objective.of_tokens else None))
            for name, (shape, _) in self.shapes(1, micro=micro).items()}

  def shapes(self, *lead: int, micro: bool
             ) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Returns shape and dtype of each array of a batch with first axes `lead`.

    The arrays are those of the objective and, in training, `place`; see
    `batches.train_batch`.
    """
    place = {'place': (lead, np.dtype(np.int32))} if micro else {}
    return self.objective.shapes(*lead) | place

  def rows(self, size: int) -> slice:
    """Returns the slice of a batch, or microbatch, that this process makes."""
    return mesh.rows(self.mesh, size)

  def put(self, batch, *, micro: bool):
    """Returns a batch for the compiled steps, from this process's part of it.

    Args:
      batch: numpy arrays of this process's `rows`.
      micro: see `batch_shardings`.
    """
    return mesh.joined(
        batch, self.batch_shardings(micro=micro),
        self.sizes.microbatch if micro else self.sizes.eval_batch,
        axis=int(micro))

  def put_given(self):
    """Puts the config's values that a step takes as arguments on the devices.

    Returns:
      `seed`, int32 [], and the values of `optim.numbers`. Configs that differ
      in these only share one compiled step.
    """
    return mesh.everywhere(self._given, self._replicated)

  @property
  def _given(self):
    return {'seed': np.int32(self.config.seed), **optim.numbers(self.config)}

  def reset_sums(self, state: step.TrainState) -> step.TrainState:
    """Returns the state with its sums at zero, for use after a log point."""
    return state.replace(sums=mesh.everywhere(
        step.zero_sums(self.objective), self._replicated))

  def compile_train(self):
    """Compiles (state, numpy batch, `put_given()`) -> (state, step made).

    The compiled function donates the state.
    """
    micro = self.sizes.microbatch
    count = self.config.train.batch_size // micro

    def update(state, batch, given):
      return step.train_step(
          self.model, self.objective, optim.make(self.config, given), state,
          batch, given['seed'], at=self.lengths)

    given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=self._replicated), self._given)
    return self._compile(
        update, self.state_shape, self._batch_shape(count, micro),
        given,
        donate_argnums=0,
        out=(jax.tree.map(lambda x: x.sharding, self.state_shape),
             self._replicated))

  def compile_eval(self):
    """Compiles (params, constants, numpy batch) -> `Objective.count`."""
    shape = self.state_shape
    return self._compile(
        functools.partial(step.eval_step, self.model, self.objective,
                          at=self.lengths),
        shape.params, shape.constants,
        self._batch_shape(self.sizes.eval_batch))

  def fit_train(self) -> tuple['Program', Any]:
    """Compiles the training step at the largest microbatch that fits.

    Returns:
      (this program with that size, the result of `compile_train`). If the
      config names a size, that size is used.
    """
    return self._fit('microbatch', self.config.train.microbatch_size,
                     lambda program: program.compile_train(), 'Training')

  def fit_eval(self) -> tuple['Program', Any]:
    """Compiles the evaluation step at the largest batch that fits.

    Returns:
      (this program with that size, the result of `compile_eval`). If the
      config names a size, that size is used.
    """
    return self._fit('eval_batch', self.config.train.eval_batch_size,
                     lambda program: program.compile_eval(), 'Evaluation')

  def _fit(self, name, named, compile_it, what):
    if named:
      return self, compile_it(self)
    share = self.mesh.shape['data'] * self.mesh.shape['fsdp']
    size, compiled = sizes_lib.fitting(
        lambda size: compile_it(self.sized(**{name: size})),
        getattr(self.sizes, name), share, sizes_lib.budget(self.mesh), what)
    return self.sized(**{name: size}), compiled

  def sized(self, **sizes: int) -> 'Program':
    """Returns this program with other `sizes`."""
    other = dataclasses.replace(
        self, sizes=dataclasses.replace(self.sizes, **sizes))
    other.__dict__['state_shape'] = self.state_shape  # sizes do not change it
    return other

  def _compile(self, function, *shapes, donate_argnums=(), out=None):
    with jax.set_mesh(self.mesh):
      compiled = jax.jit(
          function, donate_argnums=donate_argnums,
          out_shardings=out or self._replicated).lower(*shapes).compile()
    fits.check_compiled(compiled, self.mesh)
    return compiled

  @property
  def _replicated(self):
    return NamedSharding(self.mesh, P())

  def _batch_shape(self, *lead):
    shardings = self.batch_shardings(micro=len(lead) == 2)
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=shardings[name])
            for name, (shape, dtype)
            in self.shapes(*lead, micro=len(lead) == 2).items()}

  def _init(self, seed):
    rows = self.mesh.shape['data'] * self.mesh.shape['fsdp']
    batch = {name: jnp.ones(shape, dtype) for name, (shape, dtype)
             in self.objective.shapes(rows).items()}
    return step.init_state(self.model, self.objective, self.tx, seed,
                           self.objective.inputs(batch))


def make(config, devices=None, dtype: str | None = None,
         before: dict | None = None) -> Program:
  """Checks a config and builds its program.

  It also fixes JAX's settings for the rest of the process.

  Args:
    config: the whole config, without references.
    devices: the devices to use; all by default.
    dtype: the compute dtype; by default that of the config.
    before: see `sizes.wanted`.

  Raises:
    UserError: the config cannot be run; the message names the field.
  """
  jax_settings.fix()
  check.check(config)
  task = tasks.get(config.task)
  over = mesh.make(config.mesh, devices)
  check.check_mesh(config, over.shape)
  sizes = sizes_lib.wanted(config, over, before)
  fits.check_batches(config, over, sizes)
  objective = objectives.get(config.objective)(
      config, task, build.sequence_length(config, task))
  dtype = dtype or build.computing_dtype(config)
  return Program(
      config=config, objective=objective,
      model=objective.model(build.encoder(config, task, dtype),
                            jnp.dtype(dtype)),
      tx=optim.make(config), mesh=over, dtype=dtype, sizes=sizes)


def timed(function, *args):
  """Calls a function; returns (result, seconds)."""
  start = time.perf_counter()
  result = function(*args)
  return result, time.perf_counter() - start


def count_parameters(state: step.TrainState) -> dict[str, int]:
  """Counts the parameters of a state, all of them and those of the mixers."""
  numbers = sizes(state.params)
  return {'num_params': sum(numbers.values()),
          'mixer_params': sum(
              n for name, n in numbers.items() if '/mixer/' in name)}


def sizes(params) -> dict[str, int]:
  """Returns name -> number of entries, for a tree of arrays or shapes."""
  return {optim.path_name(path): int(np.prod(x.shape))
          for path, x in jax.tree_util.tree_leaves_with_path(params)}
