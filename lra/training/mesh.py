"""The devices of a run as a mesh, and which part of an array each one has.

  data      splits the examples of a microbatch
  fsdp      splits them too, and each large array of the state along its
            longest axis that it divides
  sequence  splits the tokens
"""

import math

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from kernels.meshes import SEQUENCE_AXIS
from kernels.rows import BATCH_AXES
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
  if shape.count(-1) == 1:
    shape[shape.index(-1)] = max(
        len(devices) // math.prod(n for n in shape if n != -1), 1)
  if min(shape) < 1 or math.prod(shape) != len(devices):
    said = ', '.join(f'{name}={sizes[name]}' for name in AXES)
    raise UserError(
        f'config.mesh with {said} is not possible on {len(devices)} devices: '
        'choose numbers whose product they are, one of them -1 for the rest.')
  return jax.make_mesh(
      shape, AXES, devices=devices, axis_types=(AxisType.Auto,) * len(AXES))


def of_examples(mesh, *, micro: bool, tokens: bool) -> NamedSharding:
  """How an array of a batch is split.

  Args:
    mesh: the devices.
    micro: whether it comes as microbatches, [N, B, ...]; else it is [B, ...].
    tokens: whether its last axis are the tokens.
  """
  lead = (None, BATCH_AXES) if micro else (BATCH_AXES,)
  if not tokens or mesh.shape[SEQUENCE_AXIS] == 1:
    return NamedSharding(mesh, P(*lead))
  return NamedSharding(mesh, P(*lead, SEQUENCE_AXIS))


def of_state(mesh, shape: tuple[int, ...]) -> NamedSharding:
  """How an array of the state is split: by its shape alone."""
  return NamedSharding(mesh, _of_state(mesh.shape[FSDP], shape))


def keep_split(tree):
  """The arrays, split as those of the state in the mesh that is set."""
  mesh = jax.sharding.get_abstract_mesh()
  count = 1 if mesh.empty else mesh.shape.get(FSDP, 1)
  if count == 1:
    return tree
  return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(
      x, _of_state(count, x.shape)), tree)


def _of_state(count, shape):
  _, longest = max(((size, i) for i, size in enumerate(shape)
                    if size % count == 0), default=(0, None))
  if count == 1 or longest is None or math.prod(shape) < SMALL:
    return P()
  return P(*(FSDP if i == longest else None for i in range(len(shape))))
