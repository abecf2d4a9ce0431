"""Reads tar archives, plain or compressed, as streams."""

import bz2
import contextlib
import gzip
import lzma
import pathlib
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from lra.core import files as files_lib
from lra.core.errors import UserError

# The first bytes of compressed files, and the function that opens them.
_PACKED = ((b'\x1f\x8b', gzip.open), (b'BZh', bz2.open),
           (b'\xfd7zXZ\0', lzma.open), (b'\x5d\0\0', lzma.open))
_AT_ONCE = 1 << 20
# Bytes that names and padding between two files of an archive may take.
MAX_HEADERS = 1 << 20


class Bounded:
  """A stream that limits how much `tarfile` reads into memory.

  Without it, tarfile would read a header of any size.

  Attributes:
    left: number of bytes that may still be read; `expect` sets it again.
  """

  def __init__(self, stream: BinaryIO):
    self._stream = stream
    self.left = MAX_HEADERS

  def read(self, size: int) -> bytes:
    """Reads at most `size` bytes; TarError if `size` exceeds `left`."""
    if size > self.left:
      raise tarfile.ReadError(
          f'headers of more than {MAX_HEADERS:,} bytes')
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
    self.left = member.size + MAX_HEADERS

  def __getattr__(self, name):
    return getattr(self._stream, name)


def files(source: pathlib.Path, wanted: Callable[[tarfile.TarInfo], bool]
          ) -> Iterator[tuple[str, bytes]]:
  """Yields names and contents of the wanted files of an archive.

  After the last file the rest of the archive is read too: the checksum of a
  compressed file is compared only at its end.

  Raises:
    UserError: the source is damaged or not an archive.
  """
  try:
    with files_lib.opened(source) as file, unpacked(file) as stream:
      bounded = Bounded(stream)
      with tarfile.open(fileobj=bounded, mode='r|') as archive:
        for member in archive:
          bounded.expect(member)
          if member.isfile() and not is_apple_double(member.name) and (
              wanted(member)):
            yield member.name, archive.extractfile(member).read()
      while stream.read(_AT_ONCE):
        pass
  except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError,
          ValueError, ArithmeticError, RecursionError) as e:
    raise UserError(f'{source} is damaged or not an archive ({e}): download '
                    'it again.') from e


def is_apple_double(path: str) -> bool:
  """Returns whether a file only stores macOS attributes of another file.

  macOS writes such files (`._0.png` beside `0.png`) into archives, and on file
  systems that cannot store attributes.
  """
  return path.rpartition('/')[2].startswith('._')


def unpacked(file):
  """Returns the stream in a file, decompressed if necessary."""
  start = file.peek(8)
  opener = next((o for magic, o in _PACKED if start.startswith(magic)), None)
  return opener(file) if opener else contextlib.nullcontext(file)
