"""Finds accesses to shared memory that nothing orders.

Every warp has a vector clock, as in FastTrack (Flanagan and Freund, PLDI 2009,
section 3): the latest time of each other warp that it knows. A barrier passes
this knowledge on. Two accesses to one address, at least one a write, race
unless the later warp knows of the earlier one. Copies by TMA are separate
agents, one per barrier that they report to. Reads that outlast their
instruction (TMA, tensor cores) keep their addresses busy until they are
awaited.
"""

import dataclasses

import numpy as np

CELL = 2  # bytes of a cell, the unit in which accesses are recorded
SIZE = 1 << 18  # bytes that a tensor-core descriptor can address
COPIES = 64  # maximum number of copying agents
WARPS = 4  # warps in a warpgroup
_NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Race:
  """Two unordered accesses to one byte address of shared memory.

  Attributes:
    what: description of the error, printed before the two accesses.
    second, first: indices of the instructions.
    warps: the two warps; copies by TMA are numbered after the warps.
  """
  what: str
  address: int
  second: int
  first: int
  warps: tuple


class Memory:
  """Shared memory of one block, without its contents.

  `cells` are indices of pairs of bytes, `at` is the index of an instruction.
  """

  def __init__(self, warps):
    cells, agents = SIZE // CELL, warps + COPIES
    self.warps, self.found = warps, {}
    self.clock = np.zeros((warps, agents), np.int64)
    self.clock[:, :warps] += np.eye(warps, dtype=np.int64)
    self._writer = np.zeros(cells, np.int64)
    self._written = np.zeros(cells, np.int64)  # 0 = never
    self._written_at = np.zeros(cells, np.int64)
    self._read = np.zeros((warps, cells), np.int64)
    self._read_at = np.zeros((warps, cells), np.int64)
    self._busy = np.zeros((warps, cells), np.int64)
    self._busy_at = np.zeros((warps, cells), np.int64)
    # Time at which the writer's fence made a cell visible to TMA and tensor
    # cores.
    self._visible = np.zeros(cells, np.int64)
    self._unfenced = [[] for _ in range(warps)]
    self._by = np.zeros((-(-warps // WARPS), cells), bool)

  @property
  def shared_bytes(self):
    """Returns the number of bytes that several warpgroups stored to."""
    return CELL * int((self._by.sum(axis=0) > 1).sum())

  def tick(self, warp):
    """Starts a new time of a warp, which no other warp knows yet."""
    self.clock[warp, warp] += 1

  def read(self, warp, cells, at):
    self._check_written('reads what is written', warp, cells, at)
    self._mark_read(warp, cells, at)

  def write(self, warp, cells, at):
    """Records a store by a warp."""
    replicas = (self._written_at[cells] == at) & (
        self._writer[cells] // WARPS == warp // WARPS)
    self._check_write(warp, cells, at, replicas)
    self._mark_written(warp, self.clock[warp, warp], cells, at)
    self._visible[cells] = _NEVER
    self._unfenced[warp].append(cells)
    self._by[warp // WARPS, cells] = True

  def copy(self, warp, agent, time, cells, at):
    """Records a write by TMA, started by `warp`, at the agent's `time`."""
    self._check_write(warp, cells, at, False)
    self._mark_written(agent, time, cells, at)
    self._visible[cells] = time

  def start(self, warp, cells, at):
    """Records the start of a read that outlasts its instruction."""
    if not self._check_written('reads what is written', warp, cells, at):
      self._check_written('reads without a fence what is written', warp, cells,
                          at, times=self._visible)
    self._busy[warp, cells] += 1
    self._busy_at[warp, cells] = at

  def end(self, warp, cells, at):
    """Records that a started read has been awaited."""
    self._busy[warp, cells] -= 1
    self._mark_read(warp, cells, at)

  def fence(self, warp):
    """Makes the warp's earlier stores visible to TMA and tensor cores."""
    for cells in self._unfenced[warp]:
      mine = cells[self._writer[cells] == warp]
      self._visible[mine] = self.clock[warp, warp]
    self._unfenced[warp].clear()

  def _mark_read(self, warp, cells, at):
    self._read[warp, cells] = self.clock[warp, warp]
    self._read_at[warp, cells] = at

  def _mark_written(self, agent, time, cells, at):
    self._writer[cells] = agent
    self._written[cells] = time
    self._written_at[cells] = at

  def _check_write(self, warp, cells, at, replicas):
    self._check_written('writes over what is written', warp, cells, at,
                        replicas)
    for other in range(self.warps):
      if other != warp:
        late = self._read[other, cells] > self.clock[warp, other]
        self._report_any('writes over what is read', cells, late, at, warp,
                         self._read_at[other], other)
      self._report_any('writes over what is still read', cells,
                       self._busy[other, cells] > 0, at, warp,
                       self._busy_at[other], other)

  def _check_written(self, what, warp, cells, at, replicas=False, times=None):
    """Reports a write that the warp does not know; returns whether one exists.
    """
    times = self._written if times is None else times
    known = self.clock[warp][self._writer[cells]]
    late = cells[(times[cells] > known) & ~np.asarray(replicas)]
    if late.size:
      cell = late[0]
      self._report(what, cell, at, warp, self._written_at[cell],
                   self._writer[cell])
    return late.size > 0

  def _report_any(self, what, cells, late, at, warp, other_at, other):
    if late.any():
      cell = cells[late][0]
      self._report(what, cell, at, warp, other_at[cell], other)

  def _report(self, what, cell, at, warp, first, other):
    race = Race(what, CELL * int(cell), at, int(first), (warp, int(other)))
    self.found.setdefault((what, at, race.first), race)
