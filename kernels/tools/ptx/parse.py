"""Reads PTX, the assembly language of NVIDIA's virtual machine.

It extracts from each kernel the instructions, labels, shared variables and
threads that `kernels.tools.ptx.run` needs. PTX ISA: docs.nvidia.com/cuda.
"""

import dataclasses
import functools
import re

_NOTES = re.compile(r'//[^\n]*|^[ \t]*\.(loc|file)\b[^\n]*', re.MULTILINE)
_LABEL = re.compile(r'([\w$]+):(?!:)')
_GUARD = re.compile(r'@(!?)([%\w]+)\s*')
_REGISTER = re.compile(r'%[\w.]+|\b[pP]\d*\b')
_SHARED = re.compile(r'\.shared.*?([\w$]+)\s*(?:\[(\d*)\])?\s*$', re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One instruction.

  Attributes:
    line, text: line number, from 1, and source text.
    guard: the predicate register that it depends on, or None.
    negated: whether it runs if the guard is false.
    op: the parts of its name, without dots.
    operands: source text; vectors keep their braces, addresses their brackets.
    target: index of the instruction that a branch goes to.
  """
  line: int
  text: str
  guard: str | None
  negated: bool
  op: tuple
  operands: tuple
  target: int | None = None

  @functools.cached_property
  def results(self):
    """Returns registers in the first operand, the result of most instructions.
    """
    first = self.operands[0] if self.operands else ''
    return () if '[' in first else tuple(_REGISTER.findall(first))


@dataclasses.dataclass(frozen=True)
class Kernel:
  """One entry of a PTX module, without the ending that Mosaic adds to its name.

  `shared` maps variables in shared memory to addresses. `threads` is the number
  of threads in a block.
  """
  name: str
  threads: int
  shared: dict
  code: tuple

  @property
  def warpgroups(self):
    return -(-self.threads // 128)


def kernels(text):
  """Returns the kernels in a text with any number of modules and other lines.

  Raises:
    ValueError: a kernel does not give its number of threads, a branch has no
      target, or a bracket is never closed.
  """
  return [_kernel(text, m) for m in re.finditer(r'\.entry\s+([\w$]+)', text)]


def _kernel(text, entry):
  start = text.index('{', text.index(')', entry.end()))
  head = text[entry.start() : start]
  threads = re.search(r'\.(?:max|req)ntid\s+(\d+)', head)
  if threads is None:
    raise ValueError(f'{entry[1]}: no .maxntid, the number of threads')
  reader = _Reader(text, start)
  return Kernel(re.sub('_mosaic_gpu_kernel$', '', entry[1]), int(threads[1]),
                reader.shared, reader.code())


class _Reader:
  """Reads the statements from a brace to its closing brace."""

  def __init__(self, text, start):
    # Removes comments and debugger notes; their line breaks stay.
    self.text, self.at = _NOTES.sub('', text[start:]), 0
    self.first_line = text.count('\n', 0, start) + 1
    self.shared, self.shared_end = {}, 0
    self.instructions, self.labels = [], {}
    self.scopes, self.opened = [], 0
    while self.at == 0 or self.scopes:
      self._statement()

  def code(self):
    return tuple(self._with_target(i, s) for i, s in self.instructions)

  def _statement(self):
    self._skip_space()
    if self.at == len(self.text):
      raise ValueError('a kernel has no end')
    char = self.text[self.at]
    if char == '{':
      self.opened += 1
      self.scopes.append(self.opened)
      self.at += 1
    elif char == '}':
      self.scopes.pop()
      self.at += 1
    elif label := _LABEL.match(self.text, self.at):
      self.labels[label[1], self.scopes[-1]] = len(self.instructions)
      self.at = label.end()
    else:
      self._instruction()

  def _skip_space(self):
    while self.at < len(self.text) and self.text[self.at].isspace():
      self.at += 1

  def _instruction(self):
    line = self.first_line + self.text.count('\n', 0, self.at)
    end = self.text.index(';', self.at)
    text = ' '.join(self.text[self.at : end].split())
    self.at = end + 1
    if not text:
      return
    if text.startswith('.'):
      self._directive(text)
      return
    guard = _GUARD.match(text)
    rest = text[guard.end() :] if guard else text
    name, _, operands = rest.partition(' ')
    self.instructions.append(
        (Instruction(line, text, guard[2] if guard else None,
                     bool(guard and guard[1]),
                     tuple(part for part in re.split(r'\.|::', name) if part),
                     _operands(operands)), tuple(self.scopes)))

  def _directive(self, text):
    variable = _SHARED.match(text)
    if variable:
      # A variable without a size is dynamic; it is the last one.
      self.shared[variable[1]] = self.shared_end
      self.shared_end += int(variable[2] or 0)

  def _with_target(self, instruction, scopes):
    if instruction.op[0] != 'bra':
      return instruction
    name = instruction.operands[0]
    for scope in reversed(scopes):
      if (name, scope) in self.labels:
        target = self.labels[name, scope]
        return dataclasses.replace(instruction, target=target)
    raise ValueError(f'line {instruction.line}: no label {name}')


def _operands(text):
  """Splits at commas outside of brackets and braces."""
  found, depth, start = [], 0, 0
  for at, char in enumerate(text):
    depth += (char in '[{') - (char in ']}')
    if char == ',' and depth == 0:
      found.append(text[start:at].strip())
      start = at + 1
  found.append(text[start:].strip())
  return tuple(x for x in found if x)
