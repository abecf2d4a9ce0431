"""Runs the PTX of a kernel, one block of it, as far as addresses go.

Integers are computed for every thread; what is loaded from memory, and all
that follows from it, is not known. So the addresses in shared memory are
exact, and so is the order that barriers make; `races` looks at both.

Of what happens in shared memory it follows:
  ld, st, ldmatrix, stmatrix            by threads
  wgmma                                 reads its operands until wait_group
  cp.async.bulk.tensor, towards shared  writes until its mbarrier completes
  cp.async.bulk.tensor, from shared     reads a tile until wait_group
  bar.sync, mbarrier, fence.proxy.async

What it cannot see:
  * global memory, and values: a wrong number at the right address;
  * other blocks than the one it runs, other lengths than the compiled one;
  * a choice by a number from memory: a select takes its second operand, a
    branch is refused;
  * two lanes of one warp at one place, and warps of one warpgroup that store
    there by one instruction: Mosaic replicates vectors so.
"""

import dataclasses

import numpy as np

from kernels.tools.ptx import accesses, integers, order, races, state, values

STEPS = 20_000_000  # instructions of warps, before it gives up


class Deadlock(RuntimeError):
  """All warps wait."""


@dataclasses.dataclass(frozen=True)
class Report:
  """What a run has found.

  Attributes:
    stores: instructions that stored to shared memory.
    shared_bytes: bytes that several warpgroups stored to, ordered or not.
    races: list of races.Race.
    fetched: the coordinates of every copy to shared memory, the one that runs
      fastest in memory first.
  """

  stores: int
  shared_bytes: int
  races: list
  fetched: list


def run(kernel, block=(0, 0, 0)):
  """Runs one block of a parse.Kernel, of index `block`. Returns a Report.

  Raises:
    state.Unsupported: an instruction it does not know, or an address.
    Deadlock: all warps wait. Both messages name the instruction.
  """
  return _Machine(kernel, block).run()


class _Machine:
  """A block that runs.

  Attributes:
    kernel: parse.Kernel.
    memory: races.Memory.
    barriers: address -> order.Barrier.
    named: number of a barrier -> the warps that wait there.
    stores: indices of the instructions that stored to shared memory.
    fetched: see Report.
    moved: whether anything happened that other warps may wait for.
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
    """Runs an instruction; False where the warp has to wait."""
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


_HANDLERS = {
  **integers.HANDLERS,
  **accesses.HANDLERS,
  **order.HANDLERS,
  'bra': _branch,
  'ret': _return,
  'exit': _return,
}
