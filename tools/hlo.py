"""Counts the bytes that a compiled program moves to and from device memory.

The count uses the text of the optimised program. Every top-level operation
reads its operands and writes its results once; a loop counts as often as it
runs. Tile padding counts. Arrays that XLA keeps in on-chip memory (memory space
S(1) of a TPU program) do not. A Pallas kernel counts as one operation, and an
array that it takes several times as read once.
"""

import collections
import dataclasses
import functools
import math
import operator
import re

_SIZES = {'pred': 1, 's8': 1, 'u8': 1, 'bf16': 2, 'f16': 2, 's16': 2, 'u16': 2,
          'f32': 4, 's32': 4, 'u32': 4, 'f64': 8, 's64': 8, 'u64': 8}
_FREE = {'parameter', 'bitcast', 'tuple', 'get-tuple-element', 'constant',
         'iota', 'after-all', 'partition-id', 'replica-id', 'copy-done',
         'fusion-done', 'async-done', 'opt-barrier'}
_SHAPE = re.compile(r'(\w+)\[([\d,]*)\](\{[^}]*\})?')
_LINE = re.compile(
    r'^\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = '
    r'(?P<shape>\(.*?\)|\S+) (?P<op>[a-z][\w\-]*)\((?P<rest>.*)$')
_HEAD = re.compile(r'^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .*\{')
_MOVES = {'copy', 'transpose', 'reshape', 'slice', 'dynamic-slice',
          'concatenate', 'pad', 'dynamic-update-slice', 'reverse', 'gather'}
# GPU kernel -> (thirds of a packed array that it reads, thirds that it writes).
# 'key_gradients' also receives the array with dq, but only writes to it.
_OF_THREE = {'sums': (2, 0), 'outputs': (1, 0), 'query_gradients': (1, 1),
             'key_gradients': (2, 2)}
_FUSIONS = ('fusion', 'fusion-start')
_TO_HOST = ('infeed', 'outfeed', 'send', 'recv')
_SLICES = ('dynamic-slice', 'slice', 'gather')


@dataclasses.dataclass(frozen=True)
class Operation:
  """One line of a program."""
  name: str
  shape: str
  op: str
  rest: str
  root: bool

  @property
  def operands(self):
    depth, end = 1, 0
    for end, char in enumerate(self.rest):
      depth += (char == '(') - (char == ')')
      if not depth:
        break
    return re.findall(r'%([\w.\-]+)', self.rest[:end])

  @property
  def branches(self):
    listed = re.search(r'branch_computations=\{(.*?)\}', self.rest)
    named = re.findall(r'(?:true|false)_computation=(%?[\w.\-]+)', self.rest)
    names = listed.group(1).split(',') if listed else named
    if not names:
      raise ValueError(f'The branches of this are unknown: {self.rest}')
    return [name.strip().removeprefix('%') for name in names]

  def called(self, key):
    found = re.search(key + r'=%?([\w.\-]+)', self.rest)
    return found and found.group(1)


def parse(text):
  """Returns ({computation: operations}, name of the entry computation)."""
  computations, current, entry = {}, None, None
  for line in re.sub(r'/\*.*?\*/', '', text).splitlines():
    head = _HEAD.match(line)
    if head:
      current = computations.setdefault(head['name'], [])
      entry = head['name'] if head['entry'] else entry
    elif line.startswith('}'):
      current = None
    elif current is not None and (m := _LINE.match(line)):
      current.append(
          Operation(m['name'], m['shape'], m['op'], m['rest'], bool(m['root'])))
  return computations, entry


def size(shape):
  """Returns the bytes of a shape, or of a tuple of them, in device memory."""
  return sum(_size(*found.groups()) for found in _SHAPE.finditer(shape))


def _size(dtype, dims, layout):
  layout = layout or ''
  if dtype not in _SIZES or 'S(1)' in layout:
    return 0
  dims = [int(d) for d in dims.split(',') if d]
  tile = re.search(r':T\(([\d,]+)\)', layout)
  order = re.match(r'\{([\d,]+)', layout)
  if tile and order:
    dims = [dims[int(i)] for i in reversed(order.group(1).split(','))]
    tile = [int(t) for t in tile.group(1).split(',')]
    ends = range(-1, -len(dims) - 1, -1)
    for i, t in zip(ends, reversed(tile), strict=False):
      dims[i] = -(-dims[i] // t) * t
  return math.prod(dims) * _SIZES[dtype]


def count(text, packed=0):
  """Returns (bytes moved, kernels launched) of a compiled program's text.

  The largest branch of a conditional counts. `packed` is the size of an array
  that holds q, k and v, or their gradients, side by side. GPU kernels touch the
  thirds of it given by `_OF_THREE`.
  """
  computations, entry = parse(text)
  return _walk(computations, entry, packed)


def waits(text):
  """Returns how often the host waits for a GPU in one run of a program.

  The host reads the condition of each conditional, and values that the program
  sends to it. If the number of turns of a loop is unknown, the host also reads
  the loop's condition at each turn; such a loop counts as one turn. The branch
  with most waits counts.
  """
  computations, entry = parse(text)
  return _waits(computations, entry)


def _waits(computations, name):
  total = 0
  for o in computations[name]:
    inner = _inner(computations, o)
    if o.op == 'conditional':
      total += 1 + max(_waits(computations, b) for b in o.branches)
    elif inner:
      times, body = inner
      known = o.op != 'while' or 'known_trip_count' in o.rest
      total += times * _waits(computations, body) + (not known)
    elif o.op in _TO_HOST or 'python_gpu_callback' in o.rest:
      total += 1
  return total


def copies(text, least):
  """Returns 'kind name shape' of operations that only move data.

  These are copies, transposes and the like with results of `least` bytes or
  more, but not transfers between device and on-chip memory.
  """
  return [f'{o.op} {o.name} {o.shape}' for _, o in moves(text)
          if size(o.shape) >= least]


def moves(text):
  """Returns (times it runs, `Operation`) of operations that only move data."""
  computations, entry = parse(text)
  return _moves(computations, entry)


def _moves(computations, name):
  found = []
  for o in computations[name]:
    inner = _inner(computations, o)
    if inner:
      times, body = inner
      found += [(times * n, p) for n, p in _moves(computations, body)]
    elif _only_moves(computations, o):
      found.append((1, o))
  return found


def _only_moves(computations, o):
  if o.op not in _FUSIONS:
    return o.op in _MOVES
  body = {p.op for p in computations[o.called('calls')]}
  return body <= _MOVES | _FREE | {'convert'} and bool(body & _MOVES)


def _walk(computations, name, packed):
  shapes = {o.name: o.shape for o in computations[name]}
  moved = launched = 0
  used = {operand for o in computations[name] for operand in o.operands}
  waited = {o.operands[0] for o in computations[name]
            if o.op == 'copy-done' and (o.root or o.name in used)}
  for o in computations[name]:
    if o.op in _FREE or o.op.endswith('-done'):
      continue
    if o.op == 'copy-start' and o.name not in waited:
      continue  # a transfer for the program's next run
    inner = _inner(computations, o)
    if o.op == 'conditional':
      taken = [_walk(computations, b, packed) for b in o.branches]
      moved += max(m for m, _ in taken)
      launched += max(n for _, n in taken)
    elif inner:
      times, body = inner
      m, n = _walk(computations, body, packed)
      moved, launched = moved + times * m, launched + times * n
    else:
      moved += _moved(computations, shapes, o, packed)
      launched += 1
  return moved, launched


def _inner(computations, o):
  """Returns (times it runs, computation) of a loop or call, else None."""
  if o.op == 'while':
    return _trips(computations, o) or 1, o.called('body')
  if o.op in ('call', 'async-start'):
    return 1, o.called('to_apply') or o.called('calls')
  return None


def _trips(computations, loop):
  """Returns how often a loop runs, or None if the program does not say.

  A compiler for GPUs notes the number. Programs for TPUs only have the loop's
  condition: a counter, which `jax.lax.scan` starts at 0, is below a constant.
  """
  noted = re.search(r'known_trip_count\D*(\d+)', loop.rest)
  if noted:
    return int(noted.group(1))
  condition = computations.get(loop.called('condition'), [])
  root = next((o for o in condition if o.root), None)
  if root is None or 'direction=LT' not in root.rest:
    return None
  limit = next((o for o in condition if o.name == root.operands[1]
                and o.op == 'constant'), None)
  return limit and int(limit.rest.split(')')[0])


def _moved(computations, shapes, o, packed=0):
  if o.op == 'custom-call':
    return _moved_by_call(shapes, o, packed)
  reads = [size(shapes.get(name, '')) for name in o.operands]
  write = size(o.shape)
  if o.op == 'copy-start':
    # (destination, source, context): the source is no result.
    write = size(_SHAPE.search(o.shape).group(0))
  elif o.op == 'slice-start':
    # ((source,), slice, context)
    found = list(_SHAPE.finditer(o.shape))[1].group(0)
    reads, write = [size(found.replace('S(1)', ''))], size(found)
  elif o.op in _SLICES:
    reads[:1] = [min(reads[0], write)]
  elif o.op == 'dynamic-update-slice':
    write = reads[1]
    reads[0] = 0
  elif o.op in _FUSIONS:
    if o.op == 'fusion-start':
      # ((operands), results, context)
      found = list(_SHAPE.finditer(o.shape))[len(o.operands):-1]
      write = sum(_size(*x.groups()) for x in found)
    body = computations[o.called('calls')]
    reads = [min(r, _read(body, i, r)) for i, r in enumerate(reads)]
    write = _written(body, write)
  return sum(reads) + write


def _moved_by_call(shapes, o, packed):
  reads = [size(shapes.get(name, '')) for name in dict.fromkeys(o.operands)]
  writes = _results(o, o)
  kernel = re.search(f'/({"|".join(_OF_THREE)})/', o.rest)
  if packed and kernel:
    read, written = _OF_THREE[kernel.group(1)]
    rest = [x for x in reads if x != packed]
    reads = rest + [packed * read // 3] * (len(rest) < len(reads))
    writes = [x * written // 3 if x == packed else x for x in writes]
  return sum(reads) + sum(writes)


def _results(o, made_by):
  """Returns the bytes of each result; cuBLAS's s8 one is its workspace."""
  product = 'custom_call_target="__cublas' in made_by.rest
  return [_size(*found.groups()) for found in _SHAPE.finditer(o.shape)
          if not (product and found.group(1) == 's8')]


def _read(body, index, whole):
  """Returns the bytes that a fusion reads of a parameter: all, or only slices.
  """
  name = next(o.name for o in body
              if o.op == 'parameter' and o.rest.startswith(f'{index})'))
  slices, todo = 0, [name]
  while todo:
    used = todo.pop()
    for o in body:
      if used not in o.operands:
        continue
      if o.op == 'bitcast':
        todo.append(o.name)
      elif o.op in _SLICES and o.operands[0] == used:
        slices += size(o.shape)
      elif o.op == 'dynamic-update-slice' and o.operands[0] == used:
        pass  # updated in place
      else:
        return whole
  return slices


def _written(body, whole):
  """Returns the bytes that a fusion writes; in-place updates write a part."""
  shapes = {o.name: o.shape for o in body}
  names = {o.name: o for o in body}
  root = next(o for o in body if o.root)
  roots = [names[n] for n in root.operands] if root.op == 'tuple' else [root]
  total = 0
  for o in roots:
    while o.op == 'bitcast' and o.operands:
      o = names[o.operands[0]]
    if o.op == 'dynamic-update-slice':
      total += size(shapes[o.operands[1]])
    else:
      made_by = o.op == 'get-tuple-element' and names[o.operands[0]] or o
      total += sum(_results(o, made_by))
  return min(total, whole) if len(roots) == 1 else total


COLLECTIVES = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all',
               'collective-permute')


def collectives(text):
  """Returns the communication of a device in one run of a compiled program.

  The result is {(operation, bytes of its result on a device, number of
  devices): times that it runs}. Groups of one device do not count. An operation
  in branches counts as often as in the branch that has most of it.
  """
  computations, entry = parse(text)
  return _collectives(computations, entry)


def _collectives(computations, name):
  found = collections.Counter()
  for o in computations[name]:
    inner = _inner(computations, o)
    kind = o.op.removesuffix('-start')
    if o.op == 'conditional':
      branches = (_collectives(computations, b) for b in o.branches)
      found += functools.reduce(operator.or_, branches)
    elif inner:
      times, body = inner
      for key, count in _collectives(computations, body).items():
        found[key] += times * count
    elif kind in COLLECTIVES and (devices := _devices(o)) > 1:
      found[kind, size(o.shape), devices] += 1
  return found


def _devices(o):
  """Returns how many devices a collective joins."""
  if pairs := re.search(r'source_target_pairs=\{(.*?)\}\}', o.rest):
    return len(set(re.findall(r'\d+', pairs.group(1))))
  if listed := re.search(r'replica_groups=\{\{([\d,]*)\}', o.rest):
    return len(listed.group(1).split(','))
  # [groups,devices of each]<=[...]
  if iota := re.search(r'replica_groups=\[\d+,(\d+)\]', o.rest):
    return int(iota.group(1))
  # mesh['a'=4,'b'=2], device_ids=(...) {'a'}
  named = re.search(r'replica_groups=mesh\[(.*?)\].*?\{(.*?)\}', o.rest)
  if not named:
    raise ValueError(f'The groups of this collective are unknown: {o.rest}')
  sizes = dict(re.findall(r"'(\w+)'=(\d+)", named.group(1)))
  over = re.findall(r"'(\w+)'", named.group(2))
  return math.prod(int(sizes[name]) for name in over)
