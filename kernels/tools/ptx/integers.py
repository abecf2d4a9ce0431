"""PTX instructions that compute integers and predicates.

Each handler takes the machine, the warp, the instruction and the lanes that run
it.
"""

import numpy as np

from kernels.tools.ptx import values
from kernels.tools.ptx.state import integer_type


def arithmetic(machine, warp, instruction, lanes):
  op, operands = instruction.op, instruction.operands[1:]
  value = None
  if op[-1] == 'pred':
    value = _predicate(op[0], [warp.value(x) for x in operands])
  elif kind := integer_type(op[-1]):
    known = warp.integers(operands, kind[1])
    if known is not None:
      value = values.plain(_result(op[0], *kind, known))
  warp.set(instruction, lanes, value)


def _predicate(name, known):
  if any(x is None for x in known):
    return None
  return np.logical_not(*known) if name == 'not' else _LOGIC[name](*known)


def _result(name, is_signed, bits, known):
  if name in ('shl', 'shr'):
    return values.shift(name, is_signed, bits, *known)
  if name == 'bfe':
    return values.field(is_signed, bits, *known)
  if name == 'lop3':
    return values.logic(bits, *known)
  if name == 'not':
    return values.wrap(known[0] ^ (1 << bits) - 1, bits)
  if name == 'neg':
    return values.binary('sub', is_signed, bits, 0, *known)
  return values.binary(name, is_signed, bits, *known)


def product(machine, warp, instruction, lanes):
  """Runs mul and mad: either half of the product, or all of it."""
  name, half, last = (instruction.op[i] for i in (0, 1, -1))
  kind, value = integer_type(last), None
  if kind and half in ('lo', 'hi', 'wide'):
    _, *factors = instruction.operands[:3]
    known = warp.integers(factors, kind[1])
    if known is not None:
      value = _product(half, *kind, *known)
    if name == 'mad' and value is not None:
      bits = kind[1] * (2 if half == 'wide' else 1)
      added = warp.integers(instruction.operands[3:], bits)
      value = values.wrap(value + added[0], bits) if added else None
  warp.set(instruction, lanes, values.plain(value))


def _product(half, is_signed, bits, a, b):
  if half == 'lo':
    return values.binary('mul', is_signed, bits, a, b)
  if bits > 32 and not (isinstance(a, int) and isinstance(b, int)):
    return None  # wider than an array element
  whole = values.wide_product(is_signed, bits, a, b)
  return whole if half == 'wide' else values.wrap(whole >> bits, bits)


def compare(machine, warp, instruction, lanes):
  """Runs setp, alone or combined with another predicate."""
  op, operands = instruction.op, instruction.operands
  kind, value = integer_type(op[-1]), None
  known = warp.integers(operands[1:3], kind[1]) if kind else None
  if known is not None:
    value = values.compare(op[1], *kind, *known)
    if len(op) == 4:
      value = _predicate(op[2], [value, warp.value(operands[3])])
  warp.set(instruction, lanes, value)


def select(machine, warp, instruction, lanes):
  """Runs selp: a if the condition holds; b if not, or if it is unknown."""
  _, a, b, condition = instruction.operands
  condition, kind = warp.value(condition), integer_type(instruction.op[-1])
  value = None
  if kind:
    condition = False if condition is None else condition
    value = values.choose(condition, warp.value(a), warp.value(b))
    value = None if value is None else values.wrap(value, kind[1])
  warp.set(instruction, lanes, value)


def move(machine, warp, instruction, lanes):
  """Runs mov and cvta; parts of a vector become unknown."""
  warp.set(instruction, lanes, warp.value(instruction.operands[1]))


def convert(machine, warp, instruction, lanes):
  kinds = [integer_type(x) for x in instruction.op[-2:]]
  value = None
  if all(kinds):
    (_, bits), (is_signed, source_bits) = kinds
    known = warp.integers(instruction.operands[1:], source_bits)
    if known is not None:
      x = values.signed(known[0], source_bits) if is_signed else known[0]
      value = values.wrap(x, bits)
  warp.set(instruction, lanes, value)


def shuffle(machine, warp, instruction, lanes):
  """Runs shfl.idx from one lane to all; other forms give unknown values."""
  value = None
  if 'idx' in instruction.op:
    source, lane = map(warp.value, instruction.operands[1:3])
    if source is not None and isinstance(lane, int):
      value = int(values.lanes(source)[lane % values.LANES])
  warp.set(instruction, lanes, value)


def elect(machine, warp, instruction, lanes):
  lane, elected = instruction.results
  warp.registers[lane] = 0
  warp.registers[elected] = np.arange(values.LANES) == 0


def unknown(machine, warp, instruction, lanes):
  """Runs instructions whose results no address depends on."""
  warp.set(instruction, lanes, None)


_LOGIC = {'and': np.logical_and, 'or': np.logical_or, 'xor': np.logical_xor}
_ARITHMETIC = 'add sub and or xor min max div rem shl shr bfe lop3 not neg'
HANDLERS = {**dict.fromkeys(_ARITHMETIC.split(), arithmetic), 'mul': product,
            'mad': product, 'setp': compare, 'selp': select, 'mov': move,
            'cvta': move, 'cvt': convert, 'shfl': shuffle, 'elect': elect}
