"""ListOps: nested operations on digits, ten classes.

Without a source the expressions are drawn by `data_prep.trees`; a source is a
directory with the official `basic_{train,val,test}.tsv`.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Sequence

import tensorflow_datasets as tfds

from data_prep import trees
from data_prep.builder import Builder
from data_prep.content import SPLITS, Content, split_of
from data_prep.progress import progress
from data_prep.tables import bad_row, find, part, read_rows
from lra import tasks

_SEED = 0
_LONGEST = tasks.get('listops').seq_len
_DRAWS_PER_CHUNK = 20_000
_CODES = {token: code for code, token in enumerate(trees.TOKENS)}
_NO_PARENTHESES = str.maketrans('()', '  ')
_FILES = {'train': 'basic_train.tsv', 'val': 'basic_val.tsv',
          'test': 'basic_test.tsv'}


@dataclasses.dataclass(frozen=True)
class Variant:
  """A version of the task: its process and the sizes of its splits."""
  process: trees.Process
  sizes: tuple[int, int, int]


VARIANTS = {
    'lra': Variant(trees.Process(), (96_000, 2000, 2000)),
    'mini': Variant(trees.Process(3, 5, 7, 33), (28_000, 1000, 1000)),
}


class Listops(Builder):
  """ListOps of Long Range Arena (Tay et al. 2020, arXiv 2011.04006)."""
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(
          name='lra', description='500 to 2000 tokens, depth 10'),
      tfds.core.BuilderConfig(
          name='mini', description='small enough for two CPU cores'),
  ]

  GENERATED = True

  def parameters(self):
    return {'seed': _SEED, 'tokens': trees.TOKENS,
            **dataclasses.asdict(VARIANTS[self.builder_config.name])}

  def make(self, dl_manager):
    if self.source:
      return import_official(self.source)
    return generate(VARIANTS[self.builder_config.name])

  def identify_source(self):
    if self.source:
      paths = find(self.source, _FILES, 'listops').values()
      return {path.name: path.stat().st_size for path in paths}
    return None


BUILDER = Listops


def encode(expression: str) -> bytes:
  """Token codes of an expression; parentheses are dropped.

  Raises:
    ValueError: unknown token.
  """
  words = expression.translate(_NO_PARENTHESES).split()
  try:
    return bytes([_CODES[w] for w in words])
  except KeyError as e:
    raise ValueError(f'unknown token {e}') from None


def decode(tokens: Iterable[int]) -> str:
  """The expression that `encode` made `tokens` of."""
  return ' '.join(trees.TOKENS[code] for code in tokens)


def evaluate(tokens: Sequence[int]) -> int:
  """The value of an expression, 0 to 9.

  Args:
    tokens: token codes as `encode` makes them.

  Raises:
    ValueError: not one complete expression.
  """
  waiting, arguments = [], []
  for token in tokens:
    if token < trees.DIGITS:
      arguments.append(token)
    elif token < trees.CLOSE:
      waiting.append((token, arguments))
      arguments = []
    elif waiting and arguments:
      value = _apply(waiting[-1][0], arguments)
      arguments = waiting.pop()[1]
      arguments.append(value)
    else:
      raise ValueError('an operator without arguments or a stray bracket')
  if waiting or len(arguments) != 1:
    raise ValueError('not one complete expression')
  return int(arguments[0])


def _apply(operator, arguments):
  if operator == trees.MIN:
    return min(arguments)
  if operator == trees.MAX:
    return max(arguments)
  if operator == trees.SM:
    return sum(arguments) % trees.DIGITS
  ordered = sorted(arguments)
  middle = len(ordered) // 2
  return (ordered[middle] + ordered[-middle - 1]) // 2


def generate(variant: Variant) -> Content:
  """The data set of a variant, always the same."""
  documents, values, facts = draw(variant.process, sum(variant.sizes))
  splits, start = {}, 0
  for name, size in zip(SPLITS, variant.sizes, strict=True):
    stop = start + size
    splits[name] = split_of(documents[start:stop], values[start:stop])
    start = stop
  return Content(splits, {
      'origin': f'generated with seed {_SEED}', **facts,
      'process': dataclasses.asdict(variant.process)})


def import_official(directory: pathlib.Path) -> Content:
  """The data set in the official tables, each row checked.

  Raises:
    UserError: a file is missing or a row is wrong; names file and line.
  """
  splits, seen = {}, set()
  for name, path in find(directory, _FILES, 'listops').items():
    documents, values = _import_table(path)
    seen.update(hashlib.blake2b(d, digest_size=16).digest()
                for d in documents)
    splits[name] = split_of(documents, values)
  sizes = [len(split) for split in splits.values()]
  of = part('listops', sizes, VARIANTS['lra'].sizes)
  return Content(splits, {
      'origin': f'official tables{of}, each target evaluated anew',
      'duplicates': sum(sizes) - len(seen)})


def _import_table(path):
  documents, values = [], []
  for line, fields in progress(
      read_rows(path), desc=f'checking {path.name}', unit=' rows'):
    if line == 1:
      if fields != ['Source', 'Target']:
        raise bad_row(path, line, "the header must be 'Source<tab>Target'")
      continue
    if len(fields) != 2:
      raise bad_row(path, line, f'{len(fields)} columns instead of 2')
    source, target = fields
    try:
      documents.append(encode(source))
      if len(documents[-1]) > _LONGEST:
        raise ValueError(f'{len(documents[-1]):,} tokens, of which the task '
                         f'keeps {_LONGEST:,}')
      values.append(evaluate(documents[-1]))
    except ValueError as e:
      raise bad_row(path, line, e) from None
    if target != str(values[-1]):
      raise bad_row(path, line, f'the target is {target}, but the expression '
                    f'evaluates to {values[-1]}')
  if not documents:
    raise bad_row(path, 1, 'no expressions')
  return documents, values


def draw(process: trees.Process, count: int, seed: int = _SEED):
  """Draws `count` different expressions.

  Returns:
    Token codes (bytes each), values, and a dict of how many were drawn and
    how many were dropped as equal to an earlier one.
  """
  documents, values, seen = [], [], set()
  facts = {'draws': 0, 'duplicates_dropped': 0}
  with progress(total=count, desc='drawing expressions', unit='') as bar:
    for chunk in itertools.count():
      kept = trees.draw(process, (seed, chunk), _DRAWS_PER_CHUNK)
      facts['draws'] += kept.draws
      blob, offsets = kept.tokens.tobytes(), kept.offsets.tolist()
      for start, stop, value in zip(
          offsets, offsets[1:], kept.values.tolist(), strict=False):
        document = blob[start:stop]
        digest = hashlib.blake2b(document, digest_size=16).digest()
        if digest in seen:
          facts['duplicates_dropped'] += 1
          continue
        seen.add(digest)
        documents.append(document)
        values.append(value)
      bar.update(min(len(documents), count) - bar.n)
      if len(documents) >= count:
        return documents[:count], values[:count], facts
