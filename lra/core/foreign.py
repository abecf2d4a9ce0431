"""Reads what others made: turns the errors of its readers into one sentence.

A library that reads JSON, TOML, CSV, safetensors, images or PyTorch's files may
raise any error for one that is damaged or of another kind.
"""

import contextlib
from collections.abc import Iterator

import numpy as np

from lra.core.errors import UserError
from lra.core.formats import plain

_LONGEST = 200  # most characters of a reason in an error


@contextlib.contextmanager
def reading(what: object, remedy: str, problem: str = 'cannot be read'
            ) -> Iterator[None]:
  """Context of a reader: an error becomes `<what> <problem> (<why>): <remedy>`.

  Too little memory is no fault of what is read.
  """
  try:
    yield
  except (UserError, MemoryError):
    raise
  except Exception as e:
    raise UserError(f'{what} {problem} ({why(e)}): {remedy}' + (
        '.' * (remedy[-1] != '?'))) from e


def why(error: BaseException) -> str:
  """Returns in a few words what a reader found wrong."""
  if isinstance(error, RecursionError):
    return 'it is nested too deeply'
  if isinstance(error, KeyError):
    return f'it lacks {error}'
  if 'set_int_max_str_digits' in str(error):
    return 'it has a number of thousands of digits'
  text = str(getattr(error, 'strerror', None) or error)
  if not isinstance(error, OSError | ValueError | TypeError) or not text:
    text = f'{type(error).__name__}: {text}'
  return plain(text, _LONGEST).removesuffix(':')


def finite(value) -> np.ndarray:
  """Returns numbers as float32; ValueError or TypeError if it has others."""
  array = np.asarray(value)
  with np.errstate(over='ignore'):
    array = array.astype(np.float32, casting='same_kind')
  if not np.isfinite(array).all():
    raise ValueError('it has numbers that float32 has not, such as NaN')
  return array
