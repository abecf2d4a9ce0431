"""PTX instructions that order warps: barriers and fences.

Each handler takes the machine, the warp, the instruction and the lanes that run
it. It returns False if the warp has to wait and try again.
"""

import numpy as np

from kernels.tools.ptx import values
from kernels.tools.ptx.state import Unsupported, memory_operand

WARPGROUP = 128


class Barrier:
  """An mbarrier: a phase ends when all threads arrived and all bytes came.

  `agent` is the index in vector clocks that stands for the copies to this
  barrier. `passed` is the merged vector clock of all that arrived in the last
  phase.
  """

  def __init__(self, count, agent, agents):
    self.agent, self.phase = agent, 0
    self._count, self._left, self._bytes, self._copies = count, count, 0, 0
    self._coming, self.passed = np.zeros((2, agents), np.int64)

  def arrive(self, clock, arrivals, expected):
    """Records arriving threads and the number of bytes they announce."""
    self._coming = np.maximum(self._coming, clock)
    self._left -= arrivals
    self._bytes += expected
    self._settle()

  def copied(self, size):
    """Records that `size` bytes have come; returns the time of the copy."""
    self._copies += 1
    self._coming[self.agent] = self._copies
    self._bytes -= size
    self._settle()
    return self._copies

  def _settle(self):
    if self._left == 0 and self._bytes == 0:
      self._left, self.phase = self._count, self.phase + 1
      self.passed, self._coming = self._coming, np.zeros_like(self._coming)


def mbarrier(machine, warp, instruction, lanes):
  action, where = instruction.op[1], memory_operand(instruction)
  where = warp.one_address(instruction, where)
  number = warp.integers(instruction.operands[-1:], 32)
  number = 1 if number is None else values.plain(number[0])
  if action == 'init':
    machine.add_barrier(where, number)
  elif action == 'arrive':
    _arrive(machine, warp, instruction, lanes, where, number)
  elif action == 'try_wait' and 'parity' in instruction.op:
    return _wait(machine, warp, instruction, where)
  else:
    raise Unsupported(instruction)
  return True


def _arrive(machine, warp, instruction, lanes, where, number):
  clock = machine.memory.clock[warp.index]
  threads = values.LANES if lanes is True else int(np.sum(lanes))
  if 'expect_tx' in instruction.op:
    machine.barriers[where].arrive(clock, threads, number * threads)
    # Either all threads of a warpgroup announce a share of a copy, or one
    # thread announces all of it.
    size = number * (WARPGROUP if threads == values.LANES else 1)
    warp.expected[where] = warp.expected.get(where, 0) + size
  else:
    machine.barriers[where].arrive(clock, threads * number, 0)
  machine.memory.tick(warp.index)


def _wait(machine, warp, instruction, where):
  parity = values.plain(warp.integers(instruction.operands[2:3], 32)[0])
  barrier = machine.barriers[where]
  if barrier.phase % 2 == parity:
    return False
  clock = machine.memory.clock[warp.index]
  np.maximum(clock, barrier.passed, out=clock)
  warp.set(instruction, True, True)
  return True


def named_barrier(machine, warp, instruction, lanes):
  """Runs bar.sync: waits for some threads, by default all of the block."""
  if 'warp' in instruction.op:
    return True
  if 'sync' not in instruction.op:
    raise Unsupported(instruction)
  if warp.waits is None:
    _come(machine, warp, instruction)
  if warp.waits == 'waiting':
    return False
  warp.waits = None
  return True


def _come(machine, warp, instruction):
  numbers = [values.plain(warp.value(x)) for x in instruction.operands]
  if not all(isinstance(x, int) for x in numbers):
    raise Unsupported(instruction, 'which barrier is not known')
  name, count = (*numbers, machine.kernel.threads)[:2]
  there = machine.named.setdefault(name, [])
  there.append(warp)
  warp.waits = 'waiting'
  machine.moved = True
  if len(there) * values.LANES == count:
    clock = machine.memory.clock
    known = np.max([clock[w.index] for w in there], axis=0)
    for w in there:
      clock[w.index] = known
      machine.memory.tick(w.index)
      w.waits = 'passed'
    there.clear()


def fence(machine, warp, instruction, lanes):
  if instruction.op[1:3] == ('proxy', 'async'):
    machine.memory.fence(warp.index)


HANDLERS = {'mbarrier': mbarrier, 'bar': named_barrier,
            'barrier': named_barrier, 'fence': fence}
