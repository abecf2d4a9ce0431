"""Runs one block of a kernel's PTX, as far as addresses need it.

Integers are computed for every thread. Values loaded from memory, and all
values that depend on them, are unknown. So addresses in shared memory are
exact, and so is the order that barriers enforce; `races` checks both.

Instructions on shared memory that it follows:
  ld, st, ldmatrix, stmatrix            by threads
  wgmma                                 reads its operands until wait_group
  cp.async.bulk.tensor, towards shared  writes until its mbarrier completes
  cp.async.bulk.tensor, from shared     reads a tile until wait_group
  bar.sync, mbarrier, fence.proxy.async

Limits:
  * It does not follow global memory or values, so it misses a wrong number at
    the right address.
  * It runs one block only, at the compiled length.
  * If a number from memory decides, a select takes its second operand and a
    branch raises an error.
  * It allows stores to one address by two lanes of a warp, and by the warps of
    a warpgroup in one instruction. Mosaic replicates vectors in this way.
"""

import dataclasses

import numpy as np

from kernels.tools.ptx import accesses, integers, order, races, state, values

STEPS = 20_000_000  # maximum number of warp instructions


class Deadlock(RuntimeError):
  """All warps wait for each other."""


@dataclasses.dataclass(frozen=True)
class Report:
  """The results of a run.

  Attributes:
    stores: number of instructions that stored to shared memory.
    shared_bytes: bytes that several warpgroups stored to, ordered or not.
    races: list of races.Race.
    fetched: coordinates of every copy to shared memory, fastest axis first.
  """
  stores: int
  shared_bytes: int
  races: list
  fetched: list


def run(kernel, block=(0, 0, 0)):
  """Runs the block `block` of a `parse.Kernel`; returns a `Report`.

  Raises:
    state.Unsupported: an unknown instruction or address.
    Deadlock: all warps wait. Both messages name the instruction.
  """
  return _Machine(kernel, block).run()


class _Machine:
  """A running block.

  Attributes:
    barriers, named: address -> order.Barrier; number -> warps that wait at it.
    stores: indices of the instructions that stored to shared memory.
    moved: whether something happened that other warps may wait for.
  """

  def __init__(self, kernel, block):
    self.kernel, self.stores, self.fetched = kernel, set(), []
    count = -(-kernel.threads // values.LANES)
    self.warps = [state.Warp(i, kernel, block) for i in range(count)]
    self.memory = races.Memory(count)
    self.barriers, self.named, self.moved = {}, {}, True

  def run(self):
    steps = 0
    while not all(warp.done for warp in self.warps):
      self.moved = False
      for warp in self.warps:
        while not warp.done and self._step(warp):
          self.moved, steps = True, steps + 1
          if steps > STEPS:
            raise RuntimeError(f'{self.kernel.name}: no end in sight')
      if not self.moved:
        raise Deadlock(f'{self.kernel.name}: {", ".join(self._places())}')
    found = list(self.memory.found.values())
    shared = self.memory.shared_bytes
    return Report(len(self.stores), shared, found, self.fetched)

  def _places(self):
    for warp in self.warps:
      if not warp.done:
        instruction = self.kernel.code[warp.at]
        yield f'warp {warp.index} waits at line {instruction.line}'

  def add_barrier(self, address, count):
    agent = len(self.warps) + len(self.barriers)
    agents = self.memory.clock.shape[1]
    self.barriers[address] = order.Barrier(count, agent, agents)

  def _step(self, warp):
    """Runs an instruction; returns False if the warp has to wait."""
    instruction = self.kernel.code[warp.at]
    lanes = warp.lanes(instruction)
    if lanes is True or np.any(lanes):
      handler = _HANDLERS.get(instruction.op[0])
      if handler is None:
        handler = integers.unknown
        if 'shared' in instruction.op:
          raise state.Unsupported(instruction)
      if handler(self, warp, instruction, lanes) is False:
        return False
    warp.at += 1
    return True


def _branch(machine, warp, instruction, lanes):
  if not np.all(lanes):
    raise state.Unsupported(instruction, 'some lanes branch')
  warp.at = instruction.target - 1


def _return(machine, warp, instruction, lanes):
  if not np.all(lanes):
    raise state.Unsupported(instruction, 'some lanes return')
  warp.done = True


_HANDLERS = {**integers.HANDLERS, **accesses.HANDLERS, **order.HANDLERS,
             'bra': _branch, 'ret': _return, 'exit': _return}
