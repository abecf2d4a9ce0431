"""Makes the mesh of a run's devices and splits arrays over it.

In a multi-process run, each process makes the parts of its own devices. The
axes of the mesh are

  data      splits the examples of a microbatch
  fsdp      splits the examples too; also splits each large array of the state
            along its longest axis that is a multiple of fsdp
  sequence  splits the tokens
"""

import math
from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lra.core import distributed
from lra.core.errors import UserError
from lra.kernels.axes import BATCH_AXES
from lra.kernels.meshes import SEQUENCE_AXIS
from lra.nn.mixer import traits_of
from lra.run.experiment import Experiment

AXES = (*BATCH_AXES, SEQUENCE_AXIS)
DATA, FSDP = BATCH_AXES
SMALL = 1024  # arrays with fewer entries are not split
ONE_DEVICE = {name: 1 for name in AXES}


def make(sizes, devices=None):
  """Makes the mesh of `config.mesh`: axis -> devices along it, -1 for the rest.
  """
  devices = jax.devices() if devices is None else devices
  shape = [sizes[name] for name in AXES]
  if shape.count(-1) == 1 and 0 not in shape:
    shape[shape.index(-1)] = max(
        len(devices) // math.prod(n for n in shape if n != -1), 1)
  if min(shape) < 1 or math.prod(shape) != len(devices):
    said = ', '.join(f'{name}={sizes[name]}' for name in AXES)
    raise UserError(
        f'config.mesh with {said} is not possible on {len(devices)} '
        f'device{"s" * (len(devices) > 1)}: choose sizes whose product is the '
        'number of devices; one size may be -1 for the rest.')
  return jax.make_mesh(
      shape, AXES, devices=devices, axis_types=(AxisType.Auto,) * len(AXES))


def check(experiment: Experiment, shape: Mapping[str, int]) -> None:
  """Checks that batches and sequences can be split over a mesh's shape."""
  config, share = experiment.config, shape[DATA] * shape[FSDP]
  for name in ('microbatch_size', 'eval_batch_size'):
    if config.train[name] % share:  # 0 means a size chosen later
      raise UserError(
          f'config.train.{name}={config.train[name]} cannot be split over '
          f'{share} devices: choose a multiple of {share}.')
  count, length = shape[SEQUENCE_AXIS], experiment.objective.seq_len
  if count > 1 and not traits_of(
      experiment.encoder.mixer()).splits_sequences:
    raise UserError(
        f'config.mesh.sequence={count} is not possible with '
        f'{config.model.name}, in which each token needs all others: set it to '
        '1, or choose a model with linear attention such as simpletron.')
  if length % count:
    raise UserError(
        f'config.mesh.sequence={count} does not divide the {length} tokens of '
        f'{config.task}: choose a divisor, or another config.seq_len.')


def of_examples(mesh, *, micro: bool, between: int | None = None
                ) -> NamedSharding:
  """Returns the sharding of a batch [B, ...], or of microbatches [N, B, ...].

  `between` is the number of axes between examples and tokens (1 for pairs of
  sequences); None if the last axis does not hold tokens.
  """
  lead = (None, BATCH_AXES) if micro else (BATCH_AXES,)
  if between is None or mesh.shape[SEQUENCE_AXIS] == 1:
    return NamedSharding(mesh, P(*lead))
  return NamedSharding(mesh, P(*lead, *(None,) * between, SEQUENCE_AXIS))


def of_state(mesh, shape: tuple[int, ...]) -> NamedSharding:
  return NamedSharding(mesh, _of_state(mesh.shape[FSDP], shape))


def keep_split(tree, *axes: str):
  """Splits arrays like the state, whatever the compiler has chosen."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or all(mesh.shape.get(axis, 1) == 1 for axis in axes):
    return tree
  count = mesh.shape[FSDP]
  return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(
      x, _of_state(count, x.shape)), tree)


def rows(mesh, size: int) -> slice:
  """Returns the slice of a batch's `size` examples that this process makes."""
  if not distributed.is_multiprocess():
    return slice(None)
  pieces = of_examples(mesh, micro=False).addressable_devices_indices_map(
      (size,)).values()
  ends = [piece.indices(size)[:2] for (piece,) in pieces]
  return slice(min(low for low, _ in ends), max(high for _, high in ends))


def joined(batch, shardings, size: int, axis: int):
  """Joins the parts of a batch of `size` examples that processes have made."""
  if not distributed.is_multiprocess():
    return batch
  return {name: jax.make_array_from_process_local_data(
      shardings[name], x, (*x.shape[:axis], size, *x.shape[axis + 1:]))
      for name, x in batch.items()}


def everywhere(tree, sharding):
  """Puts numbers on all devices, without a comparison between processes."""
  def put(x):
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda _: x)

  return jax.tree.map(put, tree)


def largest(mesh):
  """Returns a function (own int32 [n], after) -> maxima over all processes.

  The result is ready only after the arrays `after`.
  """
  compiled = jax.jit(lambda own, after: own.max(0), keep_unused=True,
                     out_shardings=NamedSharding(mesh, P()))

  def send(own, after):
    told = compiled(jax.make_array_from_callback(
        (mesh.size, *own.shape), NamedSharding(mesh, P(AXES)),
        lambda _: own[None]), after)
    if jax.default_backend() == 'cpu':
      # A CPU may run the next batch first, and Gloo would then mix up their
      # messages. Other devices keep the order of dispatch.
      told.block_until_ready()
    return told

  return send


def _of_state(count, shape):
  _, longest = max(((size, i) for i, size in enumerate(shape)
                    if size % count == 0), default=(0, None))
  if count == 1 or longest is None or math.prod(shape) < SMALL:
    return P()
  return P(*(FSDP if i == longest else None for i in range(len(shape))))
