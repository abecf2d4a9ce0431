"""Describes a prepared data set as text, and its images as a picture."""

import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from lra.core import tasks
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.data_prep import listops, probes
from lra.data_prep.content import SPLITS, Content
from lra.data_prep.pixels import images_of

_BINS = 10
_BAR = 40
_EXAMPLES = 3
_SHOWN = 300
# The picture has this many rows and columns of images. Images are enlarged to
# at least _LEAST pixels a side. A caption takes _CAPTION pixels of height.
_ROWS, _COLUMNS = 4, 8
_LEAST = 96
_CAPTION = 14


def describe(task_name: str, content: Content) -> str:
  """Returns sizes, lengths, labels, origin, fingerprint and some examples."""
  task, train = tasks.get(task_name), content.splits['train']
  lines = [f'{task.title}: {task.num_classes} classes, '
           f'{"pairs of " if task.dual else ""}up to {task.seq_len} tokens, '
           f'vocabulary {task.vocab_size}', '']
  lines += [_size(name, content.splits[name]) for name in SPLITS]
  lines += ['', f'labels of {", ".join(SPLITS)}, in percent']
  lines += _labels(task, content.splits)
  what = 'train examples' if train.pairs is None else 'documents'
  lines += ['', f'lengths of {what}, in tokens']
  lines += histogram(np.diff(train.offsets))
  lines += ['', 'facts']
  lines += [f'  {key}: {value}' for key, value in content.info.items()
            if value is not None]
  for i in range(min(_EXAMPLES, len(train))):
    said = ' and its questions' if task.probe else f', label {train.labels[i]}'
    lines += ['', f'train example {i}{said}']
    for d in [i] if train.pairs is None else train.pairs[i].tolist():
      codes = train.tokens[train.offsets[d]:train.offsets[d + 1]].tolist()
      lines += [f'  {decode(task, codes)}']
  return '\n'.join(lines)


def _size(name, split):
  lengths, of = np.diff(split.offsets), ''
  if split.pairs is not None:
    lengths = lengths[np.unique(split.pairs)]
    of = f' of {len(lengths):,} documents'
  return (f'{name:5} {len(split):>8,} examples{of}; length mean '
          f'{lengths.mean():.1f}, median {np.median(lengths):.0f}, '
          f'{lengths.min()} to {lengths.max()}')


def _labels(task, splits):
  if task.num_classes > tasks.MOST_CLASSES:
    return ['  not shown, as there are too many classes']
  found = [probes.asked(splits[name])[2] if task.probe else splits[name].labels
           for name in SPLITS]
  shares = np.stack([
      np.bincount(labels, minlength=task.num_classes) / len(labels)
      for labels in found], 1)
  names = [plain(name, most=40) for name in task.classes] or range(len(shares))
  return [f'  {name}: ' + '  '.join(f'{100 * s:5.2f}' for s in row)
          for name, row in zip(names, shares, strict=True)]


def histogram(lengths: np.ndarray) -> list[str]:
  """Returns a text histogram: a line with a bar for each range of lengths."""
  edges = np.linspace(lengths.min(), lengths.max() + 1, _BINS + 1).astype(int)
  counts, edges = np.histogram(lengths, np.unique(edges))
  return [f'  {low:>5} - {high - 1:<5} {count:>8,} '
          + '#' * round(_BAR * count / counts.max())
          for low, high, count in zip(edges, edges[1:], counts, strict=False)]


def decode(task: tasks.Task, tokens: Sequence[int]) -> str:
  """Returns token codes as text, cut short, on one line."""
  if task.dataset == 'listops':
    text = listops.decode(tokens)
  elif task.image or task.words:
    text = ' '.join(map(str, tokens))
  elif task.probe:
    symbols = probes.VARIANTS[task.variant].alphabet
    # The answers of an expression have one code above 0, the last one.
    text = ''.join(symbols[code] for code in tokens) if (
        symbols and any(tokens[:-1])) else ' '.join(
            str(code) if code else '.' for code in tokens)
  else:
    # Cutting documents to the task's length may have split a character.
    text = ' '.join(bytes(tokens).decode(errors='replace').split())
  return text if len(text) <= _SHOWN else text[:_SHOWN] + ' ...'


def write_sheet(split, path: pathlib.Path) -> None:
  """Writes the first images of a split as a PNG, with their labels."""
  images = images_of(split, 0, _ROWS * _COLUMNS)
  by = max(1, -(-_LEAST // images.shape[1]))
  side = images.shape[1] * by
  sheet = Image.new('L', (_COLUMNS * (side + 4) + 4,
                          _ROWS * (side + _CAPTION + 4) + 4), 255)
  draw = ImageDraw.Draw(sheet)
  for i, image in enumerate(images):
    row, column = divmod(i, _COLUMNS)
    x, y = 4 + column * (side + 4), 4 + row * (side + _CAPTION + 4)
    draw.text((x, y), f'label {split.labels[i]}', fill=0)
    large = np.kron(image, np.ones((by, by), np.uint8))
    sheet.paste(Image.fromarray(large), (x, y + _CAPTION))
  try:
    sheet.save(path, 'PNG')
  except OSError as e:
    raise UserError(f'Cannot write {path} ({e.strerror}): choose another '
                    'directory with --data_dir.') from e
