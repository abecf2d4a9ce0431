"""Reads tables row by row, with errors that name file, line and reason."""

import gzip
import pathlib
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping

from lra.core.errors import UserError

# Most bytes of a line; no table here has longer rows.
_LONGEST_ROW = 1 << 26


def bad_row(path, line: int, reason) -> UserError:
  """Returns the error for line `line` (from 1) of the file `path`."""
  return UserError(f'{path}, line {line}: {reason}.')


def find(directory: pathlib.Path, files: Mapping[str, str], task: str
         ) -> dict[str, pathlib.Path]:
  """Finds `files` (key -> name) in a directory, plain or as .gz.

  Returns:
    A dict from key to path.

  Raises:
    UserError: a file is missing.
  """
  found = {}
  for key, name in files.items():
    paths = [directory / name, directory / f'{name}.gz']
    found[key] = next((p for p in paths if p.is_file()), None)
    if found[key] is None:
      raise UserError(
          f'{directory / name} does not exist: --source of {task} must be a '
          f'directory with {", ".join(files.values())}.')
  return found


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
  """Yields the number (from 1) and the bytes of each line, without its end.

  Raises:
    UserError: the archive is damaged, a line is too long for a table, or the
      file cannot be read.
  """
  opener = gzip.open if path.suffix == '.gz' else open
  line = 0
  try:
    with opener(path, 'rb') as f:
      while row := f.readline(_LONGEST_ROW):
        line += 1
        if len(row) == _LONGEST_ROW:
          raise bad_row(path, line, f'longer than {_LONGEST_ROW} bytes')
        yield line, row.rstrip(b'\r\n')
  except (EOFError, gzip.BadGzipFile, zlib.error) as e:
    raise bad_row(path, line + 1, f'damaged archive ({e})') from e
  except OSError as e:
    raise bad_row(path, line + 1, f'cannot be read ({e.strerror})') from e


def read_rows(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
  """Yields the line number and the tab-separated fields of each row.

  Raises:
    UserError: as for `read_lines`, or the text is not UTF-8.
  """
  for line, row in read_lines(path):
    try:
      yield line, row.decode('utf-8').split('\t')
    except UnicodeDecodeError as e:
      raise bad_row(path, line, e) from None


def part(task: str, found: Iterable[int], known: Iterable[int]) -> str:
  """Warns if tables have other numbers of rows than the official ones.

  It raises no error: the user may have chosen a part of the data.

  Args:
    task: name of the task.
    found, known: number of rows of each split, here and in the official tables.

  Returns:
    A note for the origin of the data; '' if the numbers agree.
  """
  found, known = ('/'.join(f'{n:,}' for n in rows) for rows in (found, known))
  if found == known:
    return ''
  print(f'warning: these tables of {task} have {found} rows, the official ones '
        f'{known}: scores on them are not comparable.', file=sys.stderr)
  return f', {found} of {known} rows'
