"""The devices of a run as a mesh, and which part of an array each one has.
Of several processes each makes the parts of its devices.

  data      splits the examples of a microbatch
  fsdp      splits them too, and each large array of the state along its
            longest axis that it divides
  sequence  splits the tokens
"""

import functools
import math

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from kernels.meshes import SEQUENCE_AXIS
from kernels.rows import BATCH_AXES
from lra import distributed
from lra.errors import UserError

AXES = (*BATCH_AXES, SEQUENCE_AXIS)
DATA, FSDP = BATCH_AXES
SMALL = 1024  # entries of an array that is not worth a split
ONE_DEVICE = {name: 1 for name in AXES}


def make(sizes, devices=None):
  """The mesh of `config.mesh`.

  Args:
    sizes: axis -> how many devices are along it; -1 for the rest of them.
    devices: what there is, all by default.

  Raises:
    UserError: the axes do not use all devices.
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
        f'device{"s" * (len(devices) > 1)}: choose numbers whose product they '
        'are, one of them -1 for the rest.')
  return jax.make_mesh(
      shape, AXES, devices=devices, axis_types=(AxisType.Auto,) * len(AXES))


def of_examples(mesh, *, micro: bool, between: int | None = None
                ) -> NamedSharding:
  """How an array of a batch is split.

  Args:
    mesh: the devices.
    micro: whether it comes as microbatches, [N, B, ...]; else it is [B, ...].
    between: how many axes are between examples and tokens, as of pairs, where
      the last axis are the tokens; None where it has no tokens.
  """
  lead = (None, BATCH_AXES) if micro else (BATCH_AXES,)
  if between is None or mesh.shape[SEQUENCE_AXIS] == 1:
    return NamedSharding(mesh, P(*lead))
  return NamedSharding(mesh, P(*lead, *(None,) * between, SEQUENCE_AXIS))


def of_state(mesh, shape: tuple[int, ...]) -> NamedSharding:
  """How an array of the state is split: by its shape alone."""
  return NamedSharding(mesh, _of_state(mesh.shape[FSDP], shape))


def keep_split(tree, *axes: str):
  """The arrays, split as those of the state, if any of `axes` does split.

  In the mesh that is set. What the compiler has split otherwise, such as the
  gradient of a table of positions over `sequence`, moves once, here.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or all(mesh.shape.get(axis, 1) == 1 for axis in axes):
    return tree
  count = mesh.shape[FSDP]
  return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(
      x, _of_state(count, x.shape)), tree)


def rows(mesh, size: int) -> slice:
  """Which of `size` examples of a batch, or microbatch, this process makes."""
  if not distributed.several():
    return slice(None)
  pieces = of_examples(mesh, micro=False).addressable_devices_indices_map(
      (size,)).values()
  ends = [piece.indices(size)[:2] for (piece,) in pieces]
  return slice(min(low for low, _ in ends), max(high for _, high in ends))


def joined(batch, shardings, size: int, axis: int):
  """A batch of all processes from what this one has made; of one, itself.

  Args:
    batch: numpy arrays of its `rows`.
    shardings: of its arrays, by name.
    size: examples of all processes.
    axis: the axis of the examples.
  """
  if not distributed.several():
    return batch
  over = next(iter(shardings.values())).mesh
  first = rows(over, size).start

  def piece(x, index):
    low, high, _ = index[axis].indices(size)
    return x[(*index[:axis], slice(low - first, high - first),
              *index[axis + 1:])]

  return {name: jax.make_array_from_callback(
      (*x.shape[:axis], size, *x.shape[axis + 1:]), shardings[name],
      functools.partial(piece, x)) for name, x in batch.items()}


def everywhere(tree, sharding):
  """Numbers that all processes have alike, as arrays on all devices.

  `jax.device_put` would have the processes compare them.
  """
  def put(x):
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda _: x)

  return jax.tree.map(put, tree)


def largest(mesh):
  """What processes tell each other through their devices, beside their work.

  Returns:
    (own int32 [n], after) -> int32 [n], the largest of all processes', on the
    devices; sent off, and told once the arrays `after` are there.
  """
  compiled = jax.jit(lambda own, after: own.max(0), keep_unused=True,
                     out_shardings=NamedSharding(mesh, P()))

  def send(own, after):
    told = compiled(jax.make_array_from_callback(
        (mesh.size, *own.shape), NamedSharding(mesh, P(AXES)),
        lambda _: own[None]), after)
    if jax.default_backend() == 'cpu':
      # Processors run in any order what they are sent, other devices in that
      # of sending: Gloo would mix this up with what the next batch tells.
      told.block_until_ready()
    return told

  return send


def _of_state(count, shape):
  _, longest = max(((size, i) for i, size in enumerate(shape)
                    if size % count == 0), default=(0, None))
  if count == 1 or longest is None or math.prod(shape) < SMALL:
    return P()
  return P(*(FSDP if i == longest else None for i in range(len(shape))))
