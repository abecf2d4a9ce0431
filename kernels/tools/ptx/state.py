"""A warp and the values of its registers."""

import collections
import functools
import re

import numpy as np

from kernels.tools.ptx import values


class Unsupported(NotImplementedError):
  """The effect of an instruction on shared memory is unknown."""

  def __init__(self, instruction, reason=''):
    where = f'line {instruction.line}: {instruction.text}'
    super().__init__(f'{where}: {reason}' if reason else where)


class Groups:
  """Reads that are under way, in the groups by which a warp awaits them."""

  def __init__(self):
    self._open, self._committed = [], collections.deque()

  def add(self, read):
    self._open.append(read)

  def commit(self):
    self._committed.append(self._open)
    self._open = []

  def all_but(self, count):
    """Yields the reads of all committed groups but the last `count`."""
    while len(self._committed) > count:
      yield from self._committed.popleft()


class Warp:
  """A warp: 32 threads in lockstep.

  Attributes:
    index, at: number in the block; index of the next instruction.
    registers: name -> value, see `values`; a predicate is a bool or bool [32].
    waits: None, 'waiting' at a named barrier, or 'passed'.
    products, sends: reads by the tensor cores, and by TMA.
    expected: mbarrier -> bytes announced for the next copy.
  """

  def __init__(self, index, kernel, block):
    lane = np.arange(values.LANES, dtype=np.uint64)
    self.index, self.at, self.done, self.waits = index, 0, False, None
    self.products, self.sends, self.expected = Groups(), Groups(), {}
    self.registers = {
        '%tid.x': lane + np.uint64(index * values.LANES), '%laneid': lane,
        '%ntid.x': kernel.threads, **{f'%tid.{axis}': 0 for axis in 'yz'},
        **{f'%ntid.{axis}': 1 for axis in 'yz'},
        **{f'%ctaid.{axis}': x for axis, x in zip('xyz', block, strict=True)},
        **kernel.shared}

  def lanes(self, instruction):
    """Returns the lanes that run an instruction: True, False or bool [32]."""
    if instruction.guard is None:
      return True
    guard = self.registers.get(instruction.guard)
    if guard is None:
      raise Unsupported(instruction, 'the guard is not known')
    guard = guard != instruction.negated
    if isinstance(guard, np.ndarray) and guard.all():
      return True
    return guard

  def value(self, operand):
    """Returns the value of a register, number or name; None if unknown."""
    if operand in self.registers:
      return self.registers[operand]
    return _number(operand)

  def integers(self, operands, bits):
    """Returns values below 2^bits, or None if one of them is unknown."""
    found = [self.value(operand) for operand in operands]
    if any(x is None for x in found):
      return None
    return [values.wrap(x, bits) for x in found]

  def address(self, operand):
    """Returns the value of an address in brackets, or None."""
    base, offset = _address(operand)
    value = self.value(base)
    if value is None or offset == 0:
      return value
    return values.wrap(value + values.wrap(offset, 64), 64)

  def shared(self, instruction, operand):
    """Returns an address in shared memory."""
    address = self.address(operand)
    if address is None:
      raise Unsupported(instruction, 'the address is not known')
    return values.wrap(address, 32)

  def one_address(self, instruction, operand):
    """Returns an address that is equal in all lanes, an int."""
    address = values.plain(self.shared(instruction, operand))
    if isinstance(address, np.ndarray):
      raise Unsupported(instruction, 'one address per lane')
    return address

  def set(self, instruction, lanes, value):
    """Writes the results of an instruction."""
    if lanes is not True:
      value = None  # written in some lanes only: unknown
    for name in instruction.results:
      self.registers[name] = value


@functools.cache
def integer_type(name):
  """Returns (signed, bits) for the name of an integer type, else None."""
  found = re.fullmatch(r'([sub])(8|16|32|64)', name)
  return found and (found[1] == 's', int(found[2]))


def memory_operand(instruction):
  """Returns the operand in brackets."""
  return next(x for x in instruction.operands if x.startswith('['))


@functools.cache
def _number(text):
  if re.fullmatch(r'-?(0[xX][\da-fA-F]+|\d+)U?', text):
    return int(text.rstrip('U'), 0)
  return None


@functools.cache
def _address(operand):
  base, sign, offset = re.fullmatch(
      r'\[\s*([%\w$]+)\s*(?:([+-])\s*(-?\w+))?\s*\]', operand).groups()
  return base, int(offset or '0', 0) * (-1 if sign == '-' else 1)
