"""The files that a data set is made from: a folder, an archive or downloads.

Archives are streamed, in bounded memory, and nothing of them is written. Tables
are read row by row. Errors name the file, the line and the reason.
"""

import bz2
import contextlib
import dataclasses
import gzip
import lzma
import os
import pathlib
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

from lra.core import files as files_lib
from lra.core.errors import UserError

# The first bytes of compressed files, and the function that opens them.
_PACKED = ((b'\x1f\x8b', gzip.open), (b'BZh', bz2.open),
           (b'\xfd7zXZ\0', lzma.open), (b'\x5d\0\0', lzma.open))
# Errors from reading a damaged file that may be compressed.
BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_AT_ONCE = 1 << 20
# Bytes that names and padding between two files of an archive may take.
_MAX_HEADERS = 1 << 20
# Most bytes of a line; no table here has longer rows.
_LONGEST_ROW = 1 << 26


@dataclasses.dataclass(frozen=True)
class Source:
  """Files of the user, or downloaded ones.

  Attributes:
    path: a folder or an archive.
    layout: what --source must be, the end of an error.
    downloads: name -> path, if several files were downloaded.
  """
  path: pathlib.Path
  layout: str = '--source must have the files of the data set'
  downloads: Mapping[str, pathlib.Path] = dataclasses.field(
      default_factory=dict)

  def refused(self, why: str) -> UserError:
    """Returns the error that the source is not what it must be."""
    return UserError(f'{self.path} {why}: {self.layout}.')

  def find(self, names: Iterable[str]) -> list[pathlib.Path]:
    """Returns the path of each file of a folder, plain or with .gz.

    Raises:
      UserError: a file is missing.
    """
    found = []
    for name in names:
      paths = [self.downloads.get(n, self.path / n)
               for n in (name, f'{name}.gz')]
      found += [path for path in paths if path.is_file()][:1]
      if not found or found[-1] not in paths:
        raise self.refused(f'has no {name}')
    return found

  def files(self, most: Callable[[str], int], inner: str = ''
            ) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the bytes of each wanted file.

    Args:
      most: function from a name to the most bytes that the file may have; false
        if it is not wanted. A name is that of the archive's member, or begins
        with that of the folder.
      inner: a subfolder; if the folder has it, only its files are read.

    Raises:
      UserError: a file or the archive is damaged, or is too large.
    """
    if not self.downloads and not self.path.is_dir():
      yield from _members(self.path, most)
      return
    for name, path in self.downloads.items() or self.walk(most, inner):
      try:
        yield name, files_lib.read(path, most(name))
      except OSError as e:
        raise UserError(f'{path} cannot be read ({e.strerror}): unpack the '
                        'archive again.') from e

  def walk(self, wanted: Callable[[str], int], inner: str = ''
           ) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields name and path of the wanted files of a folder, in order.

    It follows links. The arguments are those of `files`.
    """
    root = self.path / inner
    for folder, folders, files in os.walk(
        root if root.is_dir() else self.path, followlinks=True):
      folders.sort()
      for file in sorted(files):
        path = pathlib.Path(folder, file)
        name = path.relative_to(self.path.parent).as_posix()
        if wanted(name) and path.is_file() and not _is_apple_double(name):
          yield name, path


def sizes(paths: Iterable[pathlib.Path]) -> dict[str, int]:
  """Returns {name: bytes}, by which sources are told apart."""
  return {path.name: path.stat().st_size for path in paths}


class Bounded:
  """A stream that limits how much `tarfile` reads into memory.

  Without it, tarfile would read a header of any size.

  Attributes:
    left: number of bytes that may still be read; `expect` sets it again.
  """

  def __init__(self, stream: BinaryIO):
    self._stream = stream
    self.left = _MAX_HEADERS

  def read(self, size: int) -> bytes:
    """Reads at most `size` bytes; TarError if `size` exceeds `left`."""
    if size > self.left:
      raise tarfile.ReadError(
          f'headers of more than {_MAX_HEADERS:,} bytes')
    data = self._stream.read(size)
    self.left -= len(data)
    return data

  def expect(self, member: tarfile.TarInfo) -> None:
    """Allows the content of a member and the next headers to be read.

    Raises:
      TarError: `member` is sparse, so its size does not limit what is read.
    """
    if member.issparse():
      raise tarfile.ReadError('a sparse file')
    self.left = member.size + _MAX_HEADERS

  def __getattr__(self, name):
    return getattr(self._stream, name)


def _members(source, most):
  """Yields name and bytes of the wanted members of an archive.

  After the last one the rest of the archive is read too: the checksum of a
  compressed file is compared only at its end.
  """
  try:
    with opened(source) as stream:
      bounded = Bounded(stream)
      with tarfile.open(fileobj=bounded, mode='r|') as archive:
        for member in archive:
          bounded.expect(member)
          limit = most(member.name)
          if limit and member.isfile() and not _is_apple_double(member.name):
            if member.size > limit:
              raise UserError(
                  f'{source} has a file {member.name} of {member.size:,} bytes,'
                  ' which is far too large: download it again.')
            yield member.name, archive.extractfile(member).read()
      while stream.read(_AT_ONCE):
        pass
  except (tarfile.TarError, ArithmeticError, RecursionError, *BROKEN) as e:
    raise UserError(f'{source} is damaged or not an archive ({e}): download '
                    'it again.') from e


def _is_apple_double(name):
  """Returns whether a file, as `._0.png`, has only macOS attributes of another.
  """
  return name.rpartition('/')[2].startswith('._')


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Opens a regular file, decompressed if necessary; see `BROKEN`."""
  with files_lib.opened(path) as file:
    start = file.peek(8)
    opener = next((o for magic, o in _PACKED if start.startswith(magic)), None)
    with opener(file) if opener else contextlib.nullcontext(file) as stream:
      yield stream


def bad_row(path, line: int, reason) -> UserError:
  """Returns the error for line `line` (from 1) of the file `path`."""
  return UserError(f'{path}, line {line}: {reason}.')


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
  """Yields the number (from 1) and the bytes of each line, without its end.

  Raises:
    UserError: the archive is damaged, a line is too long for a table, or the
      file cannot be read.
  """
  line = 0
  try:
    with opened(path) as f:
      while row := f.readline(_LONGEST_ROW):
        line += 1
        if len(row) == _LONGEST_ROW:
          raise bad_row(path, line, f'longer than {_LONGEST_ROW} bytes')
        yield line, row.rstrip(b'\r\n')
  except BROKEN as e:
    reason = getattr(e, 'strerror', None)
    raise bad_row(path, line + 1, f'cannot be read ({reason})' if reason else
                  f'damaged archive ({e})') from e


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
  """Warns if the splits' numbers of rows are not those of the official tables.

  It raises no error: the user may have chosen a part of the data.

  Returns:
    A note for the origin of the data; '' if the numbers agree.
  """
  found, known = ('/'.join(f'{n:,}' for n in rows) for rows in (found, known))
  if found == known:
    return ''
  print(f'warning: these tables of {task} have {found} rows, the official ones '
        f'{known}: scores on them are not comparable.', file=sys.stderr)
  return f', {found} of {known} rows'
