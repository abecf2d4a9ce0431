"""Encodes a user's examples as token codes, like the data sets."""

import os
from collections.abc import Sequence

import numpy as np

from lra.core import foreign
from lra.core.errors import UserError
from lra.core.tasks import Task
from lra.data_prep.content import Split, split_of

SENTIMENTS = ('negative', 'positive')
YES_NO = ('no', 'yes')


def names(task: Task) -> tuple[str, ...]:
  """Returns the names of the classes of a task, in their order."""
  if task.classes:
    return task.classes
  if task.dataset in ('text', 'words'):
    return SENTIMENTS
  if task.dataset == 'image' and task.name != 'cifar100':
    from lra.data_prep.cifar import CLASSES
    return CLASSES
  if task.dataset == 'zhang':
    from lra.data_prep.zhang import CORPORA
    return CORPORA[task.variant].classes
  return YES_NO if task.num_classes == 2 else tuple(
      map(str, range(task.num_classes)))


def form(task: Task, pieces: bool = False) -> str:
  """Returns in words how an example becomes ids, without cut and padding.

  `pieces` says whether its text is split into word pieces.
  """
  if pieces:
    what = ('the lines of vocab.txt, from 0, of [CLS], the word pieces of the '
            'text (as in BERT) and [SEP]')
  elif task.image:
    from lra.data_prep import image
    red, green, blue = image.WEIGHTS
    what = ('1 + the grey value (0 to 255) of each pixel, row by row; that of '
            f'a colour is floor(255.5 / 255 * ({red:g} R + {green:g} G + '
            f'{blue:g} B))')
    what += ', then the mean of 2 x 2 pixels' * (task.name == 'image_mini')
  elif task.dataset == 'listops':
    from lra.data_prep import trees
    what = '1 + the place, from 0, in ' + ' '.join(trees.TOKENS)
  elif task.words:
    what = ('1 + the rank, from 1, of each word among the most frequent words '
            'of train; 1 for the other words')
  elif task.probe:
    what = "1 + the code of each symbol of the task's generator"
  else:
    what = '1 + each byte of the text in UTF-8'
  return what + ', for each of two documents' * task.dual


class NoExample(UserError):
  """An input, of the index `number` from 0, is not an example of a task."""

  def __init__(self, task: Task, number: int, why: str):
    super().__init__(
        f'Example {number}, counted from 0, is not valid for {task.name} '
        f'({why}): see the help of lra.share.api.Trained.predict for its form.')
    self.number = number
    self.why = why


def split(task: Task, examples: Sequence) -> Split:
  """Encodes examples of the form that `lra.share.api.Trained.predict` names.

  All labels are 0. A wrong example raises `NoExample`.
  """
  encoded = [_encoded(task, i, x) for i, x in enumerate(examples)]
  labels = np.zeros(len(encoded), np.int32)
  if not task.dual:
    return split_of(encoded, labels)
  documents = [document for pair in encoded for document in pair]
  return split_of(documents, labels, np.arange(len(documents)))


def _encoded(task, number, example):
  try:
    if task.image:
      return _image(task, example)
    if not task.dual:
      return _text(task, example)
    if len(example) != 2:
      raise ValueError(f'it has {len(example)} texts instead of two')
    return _text(task, example[0]), _text(task, example[1])
  except MemoryError:
    raise
  except Exception as e:  # decoders of images raise any exception
    raise NoExample(task, number, foreign.why(e)) from e


def _text(task, text):
  if not isinstance(text, str | bytes):
    raise TypeError(f'it is a {type(text).__name__}, not a text')
  if task.dataset == 'listops':
    from lra.data_prep import listops
    codes = listops.encode(text if isinstance(text, str) else text.decode())
    listops.evaluate(codes)  # raises for an incomplete expression
    return codes
  if task.words:
    raise ValueError('only its prepared texts have ranks of words')
  codes = text.encode() if isinstance(text, str) else text
  if max(codes, default=0) > task.vocab_size - 2:
    raise ValueError(f'a byte is above {task.vocab_size - 2}')
  return codes


def _image(task, image):
  """Returns the grey values, row by row, of an array, a PIL image or a file."""
  from PIL import Image

  from lra.data_prep import image as image_lib
  if isinstance(image, str | os.PathLike):
    image = Image.open(image)
  if isinstance(image, Image.Image):
    image = pixels(image, 'L' if image.mode in ('1', 'L') else 'RGB')
  image = np.asarray(image)
  side = int(task.seq_len ** 0.5)
  if image.dtype != np.uint8 or image.ndim not in (2, 3) or (
      image.ndim == 3 and image.shape[2] != 3):
    raise ValueError('it is not uint8 [S, S] or [S, S, 3]')
  values = image_lib.grey(image) if image.ndim == 3 else image
  if values.shape == (2 * side, 2 * side) and task.name == 'image_mini':
    values = image_lib.quarter(values[None])[0]
  if values.shape != (side, side):
    raise ValueError(f'it is {" x ".join(map(str, values.shape))} pixels, not '
                     f'{side} x {side}')
  return values.tobytes()


def pixels(image, mode: str) -> np.ndarray:
  """Returns the pixels of a PIL image, uint8, for `mode` 'L' (grey) or 'RGB'.

  Palettes, transparency and single bits are converted.

  Raises:
    ValueError: it has 16 or 32 bits a pixel, or several pictures. Pillow would
      cut the bits and take the first picture.
  """
  if image.mode.startswith(('I', 'F')):
    raise ValueError('it has more than 8 bits a colour')
  count = getattr(image, 'n_frames', 1)
  if count > 1:
    raise ValueError(f'it has {count} pictures instead of one')
  return np.asarray(image.convert(mode))
