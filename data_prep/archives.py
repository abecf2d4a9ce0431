"""Tar archives, plain or packed, read as a stream to their very end."""

import bz2
import gzip
import lzma
import pathlib
import tarfile
import zlib
from collections.abc import Callable, Iterator

from lra.errors import UserError

# The first bytes of packed files, and what unpacks them.
_PACKED = ((b'\x1f\x8b', gzip.open), (b'BZh', bz2.open),
           (b'\xfd7zXZ\0', lzma.open), (b'\x5d\0\0', lzma.open))
_AT_ONCE = 1 << 20


def files(source: pathlib.Path, wanted: Callable[[tarfile.TarInfo], bool]
          ) -> Iterator[tuple[str, bytes]]:
  """Names and contents of the files of an archive that are wanted.

  A checksum stands behind the last of them, where tarfile does not look: it is
  compared when all have been taken.

  Raises:
    UserError: no archive, or a damaged one.
  """
  try:
    with _opener(source)(source, 'rb') as stream:
      with tarfile.open(fileobj=stream, mode='r|') as archive:
        for member in archive:
          if member.isfile() and not is_apple_double(member.name) and (
              wanted(member)):
            yield member.name, archive.extractfile(member).read()
      while stream.read(_AT_ONCE):
        pass
  except (tarfile.TarError, EOFError, OSError, zlib.error,
          lzma.LZMAError) as e:
    raise UserError(f'{source} is damaged or not an archive ({e}): download '
                    'it again.') from e


def is_apple_double(path: str) -> bool:
  """Whether a file is one of macOS beside another, with its attributes.

  `._0.png` beside `0.png`, where the file system has no room for them, and in
  archives made on such a machine.
  """
  return path.rpartition('/')[2].startswith('._')


def _opener(source):
  with open(source, 'rb') as f:
    start = f.read(8)
  return next((o for magic, o in _PACKED if start.startswith(magic)), open)
