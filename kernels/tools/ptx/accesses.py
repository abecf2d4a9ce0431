"""PTX instructions that access shared memory.

Each handler takes the machine, the warp, the instruction and the lanes that run
it.
"""

import re

import numpy as np

from kernels.tools.ptx import races, values
from kernels.tools.ptx.state import Unsupported, memory_operand

TILE_BYTES = 64 * 128  # a tile, which TMA copies from shared memory
ATOM_BYTES = 8 * 128  # an atom of the 128-byte swizzle
_ELSEWHERE = {'global', 'local', 'param', 'const'}


def load_or_store(machine, warp, instruction, lanes):
  """Runs ld and st of any width."""
  op, where = instruction.op, memory_operand(instruction)
  store = op[0] == 'st'
  if not store:
    warp.set(instruction, lanes, None)
  if _ELSEWHERE & set(op):
    return
  if 'shared' not in op and warp.address(where) is None:
    return  # a pointer from outside the kernel
  vector = next((int(x[1:]) for x in op if re.fullmatch(r'v\d', x)), 1)
  width = int(re.search(r'\d+', op[-1])[0]) // 8 * vector
  address = np.atleast_1d(warp.shared(instruction, where)).astype(np.uint64)
  if lanes is not True and address.size > 1:
    address = address[lanes]
  _touch(machine, warp, _cells(address, width), store)


def matrix(machine, warp, instruction, lanes):
  """Runs ldmatrix and stmatrix; a lane addresses a row of 16 bytes."""
  store = instruction.op[0] == 'stmatrix'
  if not store:
    warp.set(instruction, lanes, None)
  tiles = next(int(x[1:]) for x in instruction.op if re.fullmatch(r'x\d', x))
  address = warp.shared(instruction, memory_operand(instruction))
  cells = _cells(values.lanes(address)[: 8 * tiles], 16)
  _touch(machine, warp, cells, store)


def _touch(machine, warp, cells, store):
  if store:
    machine.stores.add(warp.at)
    machine.memory.write(warp.index, cells, warp.at)
  else:
    machine.memory.read(warp.index, cells, warp.at)


def product(machine, warp, instruction, lanes):
  """Runs wgmma, which reads its operands until it is awaited."""
  action = instruction.op[1]
  if action == 'mma_async':
    for cells in _operands(warp, instruction):
      _start(machine, warp, warp.products, cells)
    warp.set(instruction, lanes, None)
  elif action == 'commit_group':
    warp.products.commit()
  elif action == 'wait_group':
    _finish(machine, warp, warp.products, int(instruction.operands[0]))


def _start(machine, warp, groups, cells):
  machine.memory.start(warp.index, cells, warp.at)
  groups.add((cells, warp.at))


def _finish(machine, warp, groups, count):
  for cells, at in groups.all_but(count):
    machine.memory.end(warp.index, cells, at)


def _operands(warp, instruction):
  """Yields the cells of each operand in shared memory."""
  _, a, b, _, _, _, *transposed = instruction.operands
  columns = int(re.search(r'n(\d+)', instruction.op[4])[1])
  if not a.startswith('{'):
    yield _tile(warp, instruction, a, 64, transposed[0] == '1')
  yield _tile(warp, instruction, b, columns, transposed[-1] == '1')


def _tile(warp, instruction, descriptor, rows, transposed):
  """Returns the cells of the swizzle atoms that hold an operand.

  The operand has 16 columns of `rows` rows or, if transposed, 16 rows of 64
  columns.
  """
  value = warp.value(descriptor)
  if not isinstance(value, int):
    raise Unsupported(instruction, 'a descriptor is not known')
  if value >> 62 != 1 or (transposed and rows != 64):
    raise Unsupported(instruction, 'not 64 columns in a swizzle of 128 bytes')
  start, step = ((value >> bit & 0x3FFF) << 4 for bit in (0, 32))
  if start % ATOM_BYTES >= (1 if transposed else 128):
    raise Unsupported(instruction, 'an operand does not start at an atom')
  atoms = np.arange(2 if transposed else rows // 8, dtype=np.uint64)
  first = start // ATOM_BYTES * ATOM_BYTES
  return _cells(first + step * atoms, ATOM_BYTES)


def copy(machine, warp, instruction, lanes):
  """Runs cp.async.bulk (TMA)."""
  op, operands = instruction.op, instruction.operands
  action = op[3] if op[:3] == ('cp', 'async', 'bulk') else None
  if action == 'commit_group':
    warp.sends.commit()
  elif action == 'wait_group':
    _finish(machine, warp, warp.sends, int(operands[0]))
  elif action == 'tensor' and 'mbarrier' in op:
    target, source, barrier = operands
    machine.fetched.append(_coordinates(warp, source))
    barrier = warp.one_address(instruction, barrier)
    target = warp.one_address(instruction, target)
    size = warp.expected.pop(barrier)
    time = machine.barriers[barrier].copied(size)
    cells = _cells(np.asarray([target], np.uint64), size)
    agent = machine.barriers[barrier].agent
    machine.memory.copy(warp.index, agent, time, cells, warp.at)
  elif action == 'tensor' and 'bulk_group' in op:
    source = warp.one_address(instruction, operands[1])
    cells = _cells(np.asarray([source], np.uint64), TILE_BYTES)
    _start(machine, warp, warp.sends, cells)
  else:
    raise Unsupported(instruction)


def _coordinates(warp, source):
  """Returns a copy's coordinates, the fastest first; None for unknown ones."""
  inside = re.search(r'\{(.*)\}', source)[1]
  found = (values.plain(warp.value(x.strip())) for x in inside.split(','))
  return tuple(found)


def _cells(starts, size):
  """Returns the indices of the cells in ranges of `size` bytes."""
  offsets = np.arange(0, max(size, races.CELL), races.CELL, dtype=np.uint64)
  cells = (starts[:, None] + offsets) // np.uint64(races.CELL)
  return cells.astype(np.int64).ravel()


HANDLERS = {'ld': load_or_store, 'st': load_or_store, 'ldmatrix': matrix,
            'stmatrix': matrix, 'wgmma': product, 'cp': copy}
