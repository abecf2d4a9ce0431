"""The files that a data set is made from: a folder, an archive or downloads.

Archives and tables are streamed in bounded memory; nothing is unpacked.
"""

import bz2
import contextlib
import dataclasses
import gzip
import hashlib
import lzma
import os
import pathlib
import sys
import tarfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

from lra.core import files as files_lib
from lra.core import foreign
from lra.core.errors import UserError

# The first bytes of compressed files, and the function that opens them.
_PACKED = ((b'\x1f\x8b', gzip.open), (b'BZh', bz2.open),
           (b'\xfd7zXZ\0', lzma.open), (b'\x5d\0\0', lzma.open))
# Errors from reading a damaged file that may be compressed.
BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_AT_ONCE = 1 << 20
# Most bytes of a line; no table here has longer rows.
_LONGEST_ROW = 1 << 26


@dataclasses.dataclass(frozen=True)
class Origin:
  """The original files of a data set.

  `layout` says what --source must be. `downloads` maps an address to (size,
  SHA-256). If there are several, `folder` is a name for a folder of them.
  """
  title: str
  layout: str
  downloads: Mapping[str, tuple[int, str]] = dataclasses.field(
      default_factory=dict)
  folder: str = ''


@dataclasses.dataclass(frozen=True)
class Source:
  """A folder, an archive, or downloads, name -> path.

  `layout` says what --source must be; it ends errors.
  """
  path: pathlib.Path
  layout: str = '--source must have the files of the data set'
  downloads: Mapping[str, pathlib.Path] = dataclasses.field(
      default_factory=dict)

  def refused(self, why: str) -> UserError:
    return UserError(f'{self.path} {why}: {self.layout}.')

  def find(self, names: Iterable[str]) -> list[pathlib.Path]:
    """Returns the path of each file, plain or with .gz, if all are there."""
    found = []
    for name in names:
      both = [self.downloads.get(n, self.path / n)
              for n in (name, f'{name}.gz')]
      path = next((path for path in both if path.is_file()), None)
      if path is None:
        raise self.refused(f'has no {name}')
      found.append(path)
    return found

  def files(self, most: Callable[[str], int], inner: str = ''
            ) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the bytes of each wanted file.

    Args:
      most: function from a name, such as `FOLDER/a.txt`, to the most bytes that
        the file may have; false if it is not wanted.
      inner: a subfolder; if the folder has it, only its files are read.
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

  def paths(self, wanted: Callable[[str], int], inner: str = ''
            ) -> list[pathlib.Path]:
    """Returns the source itself if it is a file, else its `walk`."""
    return [self.path] if self.path.is_file() else [
        path for _, path in self.walk(wanted, inner)]

  def walk(self, wanted: Callable[[str], int], inner: str = ''
           ) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields name and path of the `files` of a folder; follows links."""
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
  """Returns {name: bytes}."""
  return {path.name: path.stat().st_size for path in paths}


def digest(paths: Iterable[pathlib.Path]) -> str:
  """Returns the SHA-256 of the names and the contents of files."""
  found = hashlib.sha256()
  for path in paths:
    with files_lib.opened(path) as file:
      content = hashlib.file_digest(file, 'sha256').hexdigest()
    found.update(f'{path.name} {content}\n'.encode())
  return found.hexdigest()


def _members(source, most):
  with foreign.reading(source, 'download it again',
                       'is damaged or not an archive'):
    with opened(source) as stream:
      with tarfile.open(fileobj=stream, mode='r|') as archive:
        for member in archive:
          limit = most(member.name)
          if limit and member.isfile() and not _is_apple_double(member.name):
            if member.size > limit:
              raise UserError(
                  f'{source} has a file {member.name} of {member.size:,} bytes,'
                  ' which is far too large: download it again.')
            yield member.name, archive.extractfile(member).read()
      while stream.read(_AT_ONCE):
        pass  # the checksum of a compressed file is compared at its end


def _is_apple_double(name):
  # macOS keeps the attributes of `0.png` in `._0.png`.
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
  """Yields the number (from 1) and the bytes of each line, without its end."""
  line = 0
  try:
    with opened(path) as f:
      while row := f.readline(_LONGEST_ROW):
        line += 1
        if len(row) == _LONGEST_ROW:
          raise bad_row(path, line, f'longer than {_LONGEST_ROW} bytes')
        start = BOM_UTF8 if line == 1 else b''
        yield line, row.removeprefix(start).rstrip(b'\r\n')
  except BROKEN as e:
    reason = getattr(e, 'strerror', None)
    raise bad_row(path, line + 1, f'cannot be read ({reason})' if reason else
                  f'damaged archive ({e})') from e


def read_rows(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
  """Yields the line number and the tab-separated fields of each row."""
  for line, row in read_lines(path):
    try:
      yield line, row.decode('utf-8').split('\t')
    except UnicodeDecodeError as e:
      raise bad_row(path, line, e) from None


def part(task: str, found: Iterable[int], known: Iterable[int]) -> str:
  """Warns if the splits have not the numbers of rows of the official tables.

  The user may have chosen a part of the data. Returns a note for its origin, or
  ''.
  """
  found, known = ('/'.join(f'{n:,}' for n in rows) for rows in (found, known))
  if found == known:
    return ''
  print(f'warning: these tables of {task} have {found} rows, the official ones '
        f'{known}: scores on them are not comparable.', file=sys.stderr)
  return f', {found} of {known} rows'
