"""Sparse attention patterns as data: which keys does each query see?

One `Pattern` configures the computation (`lra.nn.block_sparse`) and spells
itself out as a boolean [L, L] matrix. To draw a model's pattern as a PNG:

  python -m lra.models.patterns --model=bigbird --length=1024 --out=bigbird.png
"""

import argparse
import ast
import dataclasses
import sys

import numpy as np

from lra.errors import UserError

# What `Pattern.kinds` calls a pair of positions, 0 being "does not see".
KINDS = ('none', 'window', 'global', 'summary', 'random')


@dataclasses.dataclass(frozen=True)
class Pattern:
  """The pairs (query i, key j) with attention: the union of what follows.

  Attributes:
    block: positions in a block of the window and of `random_blocks`.
    offsets: the window, as blocks relative to the query's own: (0,) is the own
      block, (-1, 0, 1) that and its neighbours, () none.
    radius: if given, only |i - j| <= radius * dilation of the window is seen.
    dilation: positions between neighbours of the window: it and its blocks
      then consist of positions equal modulo `dilation`.
    global_keys: so many first positions are seen by all queries.
    global_queries: so many first positions see all keys.
    summary: (period, width): the last `width` positions of every `period` are
      seen by all queries.
    random_blocks: [H][N][R] nested tuples: for head h and query block n the R
      key blocks seen besides, -1 for none; one entry instead of H is shared by
      the heads. They must not be in the window.

  Raises:
    UserError: a size is not positive, or no query would see any key.
  """
  block: int = 64
  offsets: tuple[int, ...] = (0,)
  radius: int | None = None
  dilation: int = 1
  global_keys: int = 0
  global_queries: int = 0
  summary: tuple[int, int] | None = None
  random_blocks: tuple[tuple[tuple[int, ...], ...], ...] = ()

  def __post_init__(self):
    if min(self.block, self.dilation, *(self.summary or ())) < 1:
      raise UserError('Blocks, dilations, strides and summaries of an '
                      'attention pattern must be 1 or more.')
    if not (self.offsets or self.global_keys or self.summary):
      raise UserError('An attention pattern needs a window, global keys or '
                      'summaries.')

  def shared_keys(self, length: int) -> np.ndarray:
    """Bool [L]: the keys that all queries see."""
    j = np.arange(length)
    shared = j < self.global_keys
    if self.summary:
      period, width = self.summary
      shared |= j % period >= period - width
    return shared

  def num_keys(self, length: int) -> int:
    """How many keys the computation gives a query, masked ones included."""
    blocks = len(self.fitting_offsets(length))
    if self.random_blocks:
      blocks += len(self.random_blocks[0][0])
    return blocks * self.block + int(self.shared_keys(length).sum())

  def fitting_offsets(self, length: int) -> tuple[int, ...]:
    """The offsets which some query block of a sequence can use."""
    blocks = -(-length // (self.block * self.dilation))
    return tuple(o for o in self.offsets if abs(o) < blocks)

  def kinds(self, length: int, head: int = 0) -> np.ndarray:
    """uint8 [L, L]: for query i and key j an index into `KINDS`."""
    i, j = np.arange(length)[:, None], np.arange(length)[None]
    kinds = np.zeros((length, length), np.uint8)
    kinds[self._random(i, j, head)] = KINDS.index('random')
    kinds[self._window(i, j)] = KINDS.index('window')
    kinds[:, self.shared_keys(length)] = KINDS.index('summary')
    kinds[:, :self.global_keys] = KINDS.index('global')
    kinds[:self.global_queries] = KINDS.index('global')
    return kinds

  def mask(self, length: int, head: int = 0) -> np.ndarray:
    """Bool [L, L]: whether query i sees key j."""
    return self.kinds(length, head) > 0

  def _window(self, i, j):
    block_i, block_j = (x // self.dilation // self.block for x in (i, j))
    seen = np.isin(block_j - block_i, self.offsets)
    seen &= (i - j) % self.dilation == 0
    if self.radius is not None:
      seen &= np.abs(i - j) <= self.radius * self.dilation
    return seen

  def _random(self, i, j, head):
    if not self.random_blocks:
      return np.zeros(np.broadcast_shapes(i.shape, j.shape), bool)
    tables = np.array(self.random_blocks)
    table_NxR = tables[head % len(tables)]
    seen_NxN = (table_NxR[:, :, None] == np.arange(len(table_NxR))).any(1)
    return seen_NxN[i // self.block, j // self.block]


def sliding_window(radius: int, **others) -> Pattern:
  """|i - j| <= radius * dilation; `others` are fields of `Pattern`."""
  # Blocks of half the radius compute 5/4 of the window's keys, each copied
  # five times; smaller ones compute fewer, but copy more. 16: tiny blocks
  # would make tiny matrix products.
  block = max(16, -(-radius // 2))
  reach = -(-radius // block)
  return Pattern(block=block, offsets=tuple(range(-reach, reach + 1)),
                 radius=radius, **others)


def random_blocks(num_blocks: int, num_random: int, *, reach: int,
                  num_global: int, heads: int, seed: tuple[int, ...]):
  """Draws `Pattern.random_blocks`: distinct, outside window and globals.

  Args:
    num_blocks: N.
    num_random: R; fewer blocks where fewer are left.
    reach: blocks of the window on either side of the query's own.
    num_global: so many first blocks are global.
    heads: H tables are drawn.
    seed: of numpy's default generator.
  """
  if not num_random:
    return ()
  rng = np.random.default_rng(seed)

  def row(n):
    free = [m for m in range(num_global, num_blocks) if abs(m - n) > reach]
    drawn = rng.permutation(free)[:num_random]
    return tuple(int(m) for m in drawn) + (-1,) * (num_random - len(drawn))

  return tuple(
      tuple(row(n) for n in range(num_blocks)) for _ in range(heads))


def of_model(name: str, length: int, fields: dict) -> tuple[Pattern, ...]:
  """The patterns of a model's groups of heads.

  Args:
    name: of the model.
    length: L.
    fields: fields of its Mixer which differ from the defaults.

  Raises:
    UserError: no such model or field, or it has no fixed pattern.
  """
  from lra import models

  mixer = models.module(name).Mixer
  if not hasattr(mixer, 'patterns'):
    raise UserError(
        f'{name} has no fixed pattern to draw: choose a model whose Mixer has '
        'a method patterns, such as bigbird.')
  try:
    mixer = mixer(**fields)
  except TypeError as error:
    raise UserError(f'--set does not fit {name}: {error}.') from error
  return mixer.patterns(length)


def draw(patterns: tuple[Pattern, ...], length: int, title: str,
         path: str) -> None:
  """Writes a PNG with one panel per pattern: rows queries, columns keys."""
  from matplotlib import colors, figure, patches

  palette = ('white', 'tab:blue', 'tab:orange', 'tab:purple', 'tab:green')
  fig = figure.Figure(figsize=(6 * len(patterns), 7), layout='constrained')
  fig.suptitle(title)
  present = set()
  for n, (axes, pattern) in enumerate(zip(
      fig.subplots(1, len(patterns), squeeze=False)[0], patterns, strict=True)):
    kinds = pattern.kinds(length)
    axes.imshow(kinds, cmap=colors.ListedColormap(palette), vmin=0,
                vmax=len(palette) - 1, interpolation='nearest')
    group = f'heads {n + 1}/{len(patterns)}: ' if len(patterns) > 1 else ''
    axes.set(xlabel='key', ylabel='query',
             title=f'{group}{np.mean(kinds > 0):.1%} of all pairs')
    present |= set(np.unique(kinds)) - {0}
  fig.legend(handles=[patches.Patch(color=palette[kind], label=KINDS[kind])
                      for kind in sorted(present)],
             loc='outside lower center', ncols=len(present))
  fig.savefig(path, dpi=min(max(100, length // 4), 400))


def main(argv: list[str]) -> None:
  """The command line of this module."""
  parser = argparse.ArgumentParser(
      prog='python -m lra.models.patterns',
      description='Draws the attention pattern of a model.')
  parser.add_argument('--model', required=True)
  parser.add_argument('--length', type=int, default=1024)
  parser.add_argument('--out', help='default: MODEL-LENGTH.png')
  parser.add_argument('--set', action='append', default=[],
                      metavar='FIELD=VALUE', help='a field of its Mixer')
  args = parser.parse_args(argv)
  if not 1 <= args.length <= 8192:
    raise UserError('--length must be between 1 and 8192.')
  fields = {}
  for text in args.set:
    field, _, value = text.partition('=')
    try:
      fields[field] = ast.literal_eval(value)
    except (SyntaxError, ValueError) as error:
      raise UserError(f'--set={text} is not FIELD=VALUE.') from error
  out = args.out or f'{args.model}-{args.length}.png'
  draw(of_model(args.model, args.length, fields), args.length,
       f'{args.model}, L = {args.length}', out)
  print(out)


if __name__ == '__main__':
  try:
    main(sys.argv[1:])
  except UserError as e:
    sys.exit(f'Error: {e}')
