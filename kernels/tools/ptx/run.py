"""Runs the PTX of a kernel, one block of it, as far as addresses go.

Integers are computed for every thread; what is loaded from memory, and all
that follows from it, is not known. So the addresses in shared memory are
exact, and so is the order that barriers make; `races` looks at both.

Of what happens in shared memory it follows:
  st, ld, stmatrix, ldmatrix            by threads
  wgmma                                 reads operands until wait_group
  cp.async.bulk.tensor, towards shared  writes, until its barrier completes
  cp.async.bulk.tensor, from shared     reads a tile until wait_group
  bar.sync, mbarrier, fence.proxy.async

What it cannot see:
  * global memory, and values: a wrong number at the right address;
  * other blocks than the one it runs, other lengths than the compiled one;
  * a choice by a number from memory: a select takes the second operand, a
    branch on it is refused;
  * orders that one schedule of the warps allows and another forbids: as
    barriers are counted, not timed, this one stands for all that do not
    deadlock;
  * two lanes of one warp that touch one place, and warps of one warpgroup
    that store to one place by one instruction: Mosaic replicates vectors so.
"""

import collections
import dataclasses
import re

import numpy as np

from kernels.tools.ptx import races, values

WARPGROUP = 128
STEPS = 5_000_000  # instructions, before it gives up
TILE_BYTES = 64 * 128  # what one copy from shared memory reads


class Unsupported(NotImplementedError):
  """An instruction whose effect on shared memory is not known."""


class Deadlock(RuntimeError):
  """All warps wait."""


@dataclasses.dataclass
class Report:
  """What a run has found.

  Attributes:
    stores: instructions that stored to shared memory.
    shared_bytes: bytes that several warpgroups stored to, ordered or not.
    races: list of races.Race.
  """

  stores: int
  shared_bytes: int
  races: list


def run(kernel, block=(0, 0, 0)):
  """Runs one block of a parse.Kernel. Returns a Report.

  Raises:
    Unsupported, Deadlock: see there; the message names the instruction.
  """
  return _Machine(kernel, block).run()


class _Warp:
  def __init__(self, index, kernel, block):
    first = index * values.LANES
    lane = np.arange(values.LANES, dtype=np.uint64)
    self.index, self.at, self.done = index, 0, False
    self.registers = {
      "%tid.x": lane + np.uint64(first),
      "%laneid": lane,
      "%ntid.x": kernel.threads,
      **{f"%tid.{axis}": 0 for axis in "yz"},
      **{f"%ntid.{axis}": 1 for axis in "yz"},
      **{f"%ctaid.{axis}": x for axis, x in zip("xyz", block, strict=True)},
      **kernel.shared,
    }
    self.waits = None  # the named barrier it stands at
    self.products, self.sends = _Groups(), _Groups()
    self.expected = {}  # barrier -> bytes announced for the next copy


class _Groups:
  """Reads that were started, in the groups that a warp waits for."""

  def __init__(self):
    self.open, self.committed = [], collections.deque()

  def commit(self):
    self.committed.append(self.open)
    self.open = []

  def all_but(self, count):
    """The reads of all committed groups but the last `count`."""
    while len(self.committed) > count:
      yield from self.committed.popleft()


class _Barrier:
  """An mbarrier: a phase ends when all arrived and all bytes came."""

  def __init__(self, count, agents):
    self.count, self.left, self.bytes, self.phase = count, count, 0, 0
    self.coming = np.zeros(agents, np.int64)
    self.passed = np.zeros(agents, np.int64)

  def settle(self):
    if self.left == 0 and self.bytes == 0:
      self.left, self.phase = self.count, self.phase + 1
      self.passed, self.coming = self.coming, np.zeros_like(self.coming)


class _Machine:
  def __init__(self, kernel, block):
    self.kernel = kernel
    count = -(-kernel.threads // values.LANES)
    self.warps = [_Warp(i, kernel, block) for i in range(count)]
    self.memory = races.Memory(count)
    self.barriers, self.named, self.agents = {}, {}, {}
    self.times = collections.Counter()
    self.stores, self.left = set(), STEPS
    self.numbers = {}

  def run(self):
    while not all(warp.done for warp in self.warps):
      before = self.left
      for warp in self.warps:
        while not warp.done and self._step(warp):
          self.left -= 1
      if self.left == before:
        places = ", ".join(self._where(w) for w in self.warps if not w.done)
        raise Deadlock(f"{self.kernel.name}: all warps wait: {places}")
      if self.left < 0:
        raise Unsupported(f"{self.kernel.name}: no end after {STEPS} steps")
    return Report(
      len(self.stores),
      self.memory.shared_bytes,
      list(self.memory.found.values()),
    )

  def _where(self, warp):
    return f"warp {warp.index} at line {self.kernel.code[warp.at].line}"

  def _step(self, warp):
    """Runs an instruction; False when the warp has to wait."""
    instruction = self.kernel.code[warp.at]
    lanes = self._lanes(warp, instruction)
    if lanes is not True and not np.any(lanes):
      warp.at += 1
      return True
    handler = _HANDLERS.get(instruction.op[0], _Machine._unknown)
    if handler(self, warp, instruction, lanes) is False:
      return False
    warp.at += 1
    return True

  def _lanes(self, warp, instruction):
    """In which lanes it runs: True, False or bool [32]."""
    if instruction.guard is None:
      return True
    guard = warp.registers.get(instruction.guard)
    if guard is None:
      raise Unsupported(f"{_named(instruction)}: the guard is not known")
    guard = guard != instruction.negated
    if isinstance(guard, np.ndarray) and guard.all():
      return True
    return guard

  # Operands.

  def _value(self, warp, operand):
    if operand in warp.registers:
      return warp.registers[operand]
    if operand not in self.numbers:
      self.numbers[operand] = _number(operand)
    return self.numbers[operand]

  def _values(self, warp, operands, bits):
    """Known integers below 2^bits, or None if one of them is not known."""
    found = [self._value(warp, x) for x in operands]
    if any(x is None or isinstance(x, bool) for x in found):
      return None
    return [values.wrap(x, bits) for x in found]

  def _address(self, warp, operand):
    """The value of an address, or None."""
    base, sign, offset = re.fullmatch(
      r"\[\s*([%\w$]+)\s*(?:([+-])\s*(-?\w+))?\s*\]", operand
    ).groups()
    value = self._value(warp, base)
    if value is None or offset is None:
      return value
    step = int(offset, 0) * (-1 if sign == "-" else 1)
    return values.wrap(value + values.wrap(step, 64), 64)

  def _shared(self, warp, instruction, operand):
    address = self._address(warp, operand)
    if address is None:
      raise Unsupported(f"{_named(instruction)}: the address is not known")
    # An address in the window of shared memory may come as 32 bits.
    return values.wrap(address, 32)

  def _one(self, warp, instruction, operand):
    address = values.plain(self._shared(warp, instruction, operand))
    if isinstance(address, np.ndarray):
      raise Unsupported(f"{_named(instruction)}: one address per lane")
    return address

  def _set(self, warp, instruction, lanes, value):
    if lanes is not True:
      value = None  # of some lanes only
    for name in instruction.results:
      warp.registers[name] = value

  # Integers.

  def _unknown(self, warp, instruction, lanes):
    if "shared" in instruction.op:
      raise Unsupported(_named(instruction))
    self._set(warp, instruction, lanes, None)

  def _arithmetic(self, warp, instruction, lanes):
    op, operands = instruction.op, instruction.operands[1:]
    value = None
    if op[-1] == "pred":
      value = self._predicate(warp, op[0], operands)
    elif kind := _kind(op[-1]):
      is_signed, bits = kind
      known = self._values(warp, operands, bits)
      if known is not None:
        value = values.plain(_integer(op, is_signed, bits, known))
    self._set(warp, instruction, lanes, value)

  def _predicate(self, warp, name, operands):
    found = [self._value(warp, x) for x in operands]
    if any(x is None for x in found):
      return None
    if name == "not":
      return np.logical_not(found[0])
    return _LOGIC[name](*found)

  def _wide(self, warp, instruction, lanes):
    """mul and mad, of any half of the product."""
    half, kind = instruction.op[1], _kind(instruction.op[-1])
    value = None
    if kind and half in ("lo", "hi", "wide"):
      is_signed, bits = kind
      known = self._values(warp, instruction.operands[1:3], bits)
      if known is not None and half == "lo":
        value = values.binary("mul", is_signed, bits, *known)
      elif known and (bits <= 32 or all(isinstance(x, int) for x in known)):
        value = values.wide_product(is_signed, bits, *known)
        if half == "hi":
          value = values.wrap(value >> bits, bits)
      if instruction.op[0] == "mad" and value is not None:
        bits *= 2 if half == "wide" else 1
        last = self._values(warp, instruction.operands[3:], bits)
        value = None if last is None else values.wrap(value + last[0], bits)
    value = values.plain(value)
    self._set(warp, instruction, lanes, value)

  def _compare(self, warp, instruction, lanes):
    op, operands = instruction.op, instruction.operands
    kind = _kind(op[-1])
    known = self._values(warp, operands[1:3], kind[1]) if kind else None
    value = None
    if known is not None:
      value = values.compare(op[1], *kind, *known)
      if len(op) == 4:  # joined with another predicate
        last = self._value(warp, operands[3])
        value = None if last is None else _LOGIC[op[2]](value, last)
    self._set(warp, instruction, lanes, value)

  def _select(self, warp, instruction, lanes):
    _, *options, condition = instruction.operands
    condition = self._value(warp, condition)
    a, b = (self._value(warp, x) for x in options)
    kind = _kind(instruction.op[-1])
    if kind is None:
      value = None
    elif condition is None:
      value = b
    else:
      value = values.choose(condition, a, b)
    if value is not None:
      value = values.wrap(value, kind[1])
    self._set(warp, instruction, lanes, value)

  def _move(self, warp, instruction, lanes):
    source = instruction.operands[1]
    self._set(warp, instruction, lanes, self._value(warp, source))

  def _convert(self, warp, instruction, lanes):
    kinds = [_kind(x) for x in instruction.op[-2:]]
    value = None
    if all(kinds):
      (_, bits), (is_signed, source_bits) = kinds
      known = self._values(warp, instruction.operands[1:], source_bits)
      if known is not None:
        x = known[0]
        x = values.signed(x, source_bits) if is_signed else x
        value = values.wrap(x, bits)
    self._set(warp, instruction, lanes, value)

  def _shuffle(self, warp, instruction, lanes):
    value = None
    if "idx" in instruction.op:
      source = self._value(warp, instruction.operands[1])
      lane = values.plain(self._value(warp, instruction.operands[2]))
      if source is not None and isinstance(lane, int):
        value = int(values.lanes(source)[lane % values.LANES])
    self._set(warp, instruction, lanes, value)

  def _elect(self, warp, instruction, lanes):
    value, elected = instruction.results
    warp.registers[value] = 0
    warp.registers[elected] = np.arange(values.LANES) == 0

  # Control.

  def _branch(self, warp, instruction, lanes):
    if lanes is not True and not np.all(lanes):
      raise Unsupported(f"{_named(instruction)}: some lanes branch")
    warp.at = instruction.target - 1

  def _return(self, warp, instruction, lanes):
    if lanes is not True and not np.all(lanes):
      raise Unsupported(f"{_named(instruction)}: some lanes return")
    warp.done = True

  # Shared memory.

  def _access(self, warp, instruction, lanes):
    """ld and st, of any width."""
    op, store = instruction.op, instruction.op[0] == "st"
    where = next(x for x in instruction.operands if x.startswith("["))
    if not store:
      self._set(warp, instruction, lanes, None)
    if "param" in op or "global" in op or "local" in op or "const" in op:
      return
    if "shared" not in op and self._address(warp, where) is None:
      return  # a generic address of global memory
    address = self._shared(warp, instruction, where)
    vector = next((int(x[1]) for x in op if re.fullmatch(r"v\d", x)), 1)
    width = int(re.search(r"\d+", op[-1])[0]) // 8 * vector
    self._touch(warp, instruction, lanes, address, width, store)

  def _matrix(self, warp, instruction, lanes):
    """stmatrix and ldmatrix: a lane has the address of a row of 16 bytes."""
    store = instruction.op[0] == "stmatrix"
    where = next(x for x in instruction.operands if x.startswith("["))
    if not store:
      self._set(warp, instruction, lanes, None)
    count = next(int(x[1]) for x in instruction.op if re.fullmatch(r"x\d", x))
    address = values.lanes(self._shared(warp, instruction, where))
    address = address[: 8 * count]
    self._touch(warp, instruction, True, address, 16, store)

  def _touch(self, warp, instruction, lanes, address, width, store):
    address = np.atleast_1d(np.asarray(address, np.uint64))
    if lanes is not True and address.size > 1:
      address = address[np.broadcast_to(lanes, address.shape)]
    cells = _cells(address, width)
    if store:
      self.stores.add(warp.at)
      self.memory.write(warp.index, cells, warp.at)
    else:
      self.memory.read(warp.index, cells, warp.at)

  def _wgmma(self, warp, instruction, lanes):
    action = instruction.op[1]
    if action == "mma_async":
      for cells in self._operands(warp, instruction):
        self.memory.start(warp.index, cells, warp.at)
        warp.products.open.append((cells, warp.at))
      self._set(warp, instruction, lanes, None)
    elif action == "commit_group":
      warp.products.commit()
    elif action == "wait_group":
      self._finish(warp, warp.products, int(instruction.operands[0]))

  def _finish(self, warp, groups, count):
    for cells, at in groups.all_but(count):
      self.memory.end(warp.index, cells, at)

  def _operands(self, warp, instruction):
    """Cells of the operands of a product that lie in shared memory."""
    _, a, b, *rest = instruction.operands
    flags = [int(x) for x in rest[3:]]  # which of them are transposed
    columns = int(re.search(r"n(\d+)", instruction.op[4])[1])
    if not a.startswith("{"):
      yield self._tile(warp, instruction, a, 64, flags[0])
    yield self._tile(warp, instruction, b, columns, flags[-1])

  def _tile(self, warp, instruction, descriptor, rows, transposed):
    """What a descriptor names: whole lines of 128 bytes, 8 in an atom."""
    value = self._value(warp, descriptor)
    if not isinstance(value, int):
      raise Unsupported(f"{_named(instruction)}: descriptor not known")
    if value >> 62 != 1 or (transposed and rows != 64):
      raise Unsupported(f"{_named(instruction)}: not 128-byte swizzle")
    start = (value & 0x3FFF) << 4
    step = (value >> 32 & 0x3FFF) << 4
    atoms = 2 if transposed else rows // 8  # 16 lines deep, or rows of 32 bytes
    first = start // 1024 * 1024
    starts = first + step * np.arange(atoms, dtype=np.uint64)
    return _cells(starts, 1024)

  def _bulk(self, warp, instruction, lanes):
    op, operands = instruction.op, instruction.operands
    if op[:3] != ("cp", "async", "bulk"):
      raise Unsupported(_named(instruction))
    if op[3] == "commit_group":
      warp.sends.commit()
    elif op[3] == "wait_group":
      self._finish(warp, warp.sends, int(operands[0]))
    elif op[3] == "tensor" and "mbarrier" in op:
      self._fetch(warp, instruction)
    elif op[3] == "tensor" and "bulk_group" in op:
      start = self._one(warp, instruction, operands[1])
      cells = _cells(np.asarray([start], np.uint64), TILE_BYTES)
      self.memory.start(warp.index, cells, warp.at)
      warp.sends.open.append((cells, warp.at))
    elif op[3] != "prefetch":
      raise Unsupported(_named(instruction))

  def _fetch(self, warp, instruction):
    target = self._one(warp, instruction, instruction.operands[0])
    where = self._one(warp, instruction, instruction.operands[2])
    barrier, size = self.barriers[where], warp.expected.pop(where)
    agent = self.agents.setdefault(where, len(self.warps) + len(self.agents))
    self.times[agent] += 1
    cells = _cells(np.asarray([target], np.uint64), size)
    self.memory.copy(warp.index, agent, self.times[agent], cells, warp.at)
    barrier.coming[agent] = self.times[agent]
    barrier.bytes -= size
    barrier.settle()

  # Order.

  def _fence(self, warp, instruction, lanes):
    if instruction.op[1:3] == ("proxy", "async"):
      self.memory.fence(warp.index)

  def _named_barrier(self, warp, instruction, lanes):
    if "warp" in instruction.op:
      return True
    if "sync" not in instruction.op:
      raise Unsupported(_named(instruction))
    if warp.waits == "passed":
      warp.waits = None
      return True
    if warp.waits == "waiting":
      return False
    numbers = [values.plain(self._value(warp, x)) for x in instruction.operands]
    if not all(isinstance(x, int) for x in numbers):
      raise Unsupported(f"{_named(instruction)}: which barrier is not known")
    name, *count = numbers
    count = count[0] if count else self.kernel.threads
    there = self.named.setdefault(name, [])
    there.append(warp)
    warp.waits = "waiting"
    if len(there) * values.LANES < count:
      self.left -= 1  # it did come here
      return False
    known = np.max([self.memory.clock[w.index] for w in there], axis=0)
    for w in there:
      self.memory.clock[w.index] = known
      self.memory.tick(w.index)
      w.waits = "passed"
    del self.named[name]
    warp.waits = None
    return True

  def _mbarrier(self, warp, instruction, lanes):
    op, operands = instruction.op, instruction.operands
    where = next(x for x in operands if x.startswith("["))
    where = self._one(warp, instruction, where)
    number = self._values(warp, operands[-1:], 32)
    active = values.LANES if lanes is True else int(np.sum(lanes))
    if op[1] == "init":
      agents = self.memory.clock.shape[1]
      self.barriers[where] = _Barrier(number[0], agents)
      return True
    barrier = self.barriers[where]
    if op[1] == "arrive":
      self._arrive(warp, barrier, active, where, number, "expect_tx" in op)
    elif op[1] in ("try_wait", "test_wait") and "parity" in op:
      parity = values.plain(self._values(warp, operands[2:3], 32)[0])
      if barrier.phase % 2 == parity:
        return False
      clock = self.memory.clock[warp.index]
      np.maximum(clock, barrier.passed, out=clock)
      warp.registers[instruction.results[0]] = True
    else:
      raise Unsupported(_named(instruction))
    return True

  def _arrive(self, warp, barrier, active, where, number, expects):
    if expects:
      size = values.plain(number[0])
      barrier.bytes += size * active
      # All threads of a warpgroup announce their share of a copy, or one does.
      whole = WARPGROUP if active == values.LANES else 1
      warp.expected[where] = warp.expected.get(where, 0) + size * whole
      arrivals = active
    else:
      arrivals = active * (values.plain(number[0]) if number else 1)
    np.maximum(
      barrier.coming, self.memory.clock[warp.index], out=barrier.coming
    )
    self.memory.tick(warp.index)
    barrier.left -= arrivals
    barrier.settle()


def _named(instruction):
  return f"line {instruction.line}: {instruction.text}"


def _number(text):
  if re.fullmatch(r"-?(0[xX][\da-fA-F]+|\d+)U?", text):
    return int(text.rstrip("U"), 0)
  return None


def _kind(name):
  """(signed, bits) of an integer type, else None."""
  found = re.fullmatch(r"([sub])(8|16|32|64)", name)
  return found and (found[1] == "s", int(found[2]))


def _integer(op, is_signed, bits, x):
  name = op[0]
  if name in ("shl", "shr"):
    return values.shift(name, is_signed, bits, *x)
  if name == "bfe":
    return values.field(is_signed, bits, *x)
  if name == "lop3":
    return values.logic(bits, *x)
  if name == "not":
    return values.wrap(x[0] ^ (1 << bits) - 1, bits)
  if name == "neg":
    return values.binary("sub", is_signed, bits, 0, x[0])
  return values.binary(name, is_signed, bits, *x)


def _cells(starts, size):
  """Sorted indices of the pairs of bytes in ranges of `size` bytes."""
  offsets = np.arange(0, max(size, races.CELL), races.CELL, dtype=np.uint64)
  cells = (starts[:, None] + offsets) // np.uint64(races.CELL)
  return np.unique(cells.astype(np.int64))


_LOGIC = {
  "and": np.logical_and,
  "or": np.logical_or,
  "xor": np.logical_xor,
}
_INTEGERS = "add sub and or xor min max div rem shl shr bfe lop3 not neg"
_HANDLERS = {
  **dict.fromkeys(_INTEGERS.split(), _Machine._arithmetic),
  "mul": _Machine._wide,
  "mad": _Machine._wide,
  "setp": _Machine._compare,
  "selp": _Machine._select,
  "mov": _Machine._move,
  "cvta": _Machine._move,
  "cvt": _Machine._convert,
  "shfl": _Machine._shuffle,
  "elect": _Machine._elect,
  "bra": _Machine._branch,
  "ret": _Machine._return,
  "exit": _Machine._return,
  "ld": _Machine._access,
  "st": _Machine._access,
  "stmatrix": _Machine._matrix,
  "ldmatrix": _Machine._matrix,
  "wgmma": _Machine._wgmma,
  "cp": _Machine._bulk,
  "fence": _Machine._fence,
  "bar": _Machine._named_barrier,
  "barrier": _Machine._named_barrier,
  "mbarrier": _Machine._mbarrier,
}
