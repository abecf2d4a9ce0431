"""Files: written whole or not at all, read within bounds, locked.

A path may come from a user, or lie in a folder that somebody else has made. So
only regular files of a limited size are read: reading a pipe, a terminal or
/dev/zero would never end.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import socket
import stat
from collections.abc import Mapping
from typing import BinaryIO

from lra.core import foreign, signals
from lra.core.errors import UserError

# Largest sizes in bytes: of a file of settings, progress or source, and of a
# file with a line for each example or log point.
MAX_SETTINGS = 2**24
MAX_LINES = 2**30
# Names this machine or container, in which the number of a process counts.
_HERE = hashlib.sha256((socket.gethostname() + os.path.basename(
    os.path.realpath('/proc/self/ns/pid'))).encode()).hexdigest()[:8]


def expanded(path: pathlib.Path) -> pathlib.Path:
  try:
    return path.expanduser()
  except RuntimeError as e:
    raise UserError(f'{path} begins with ~, but no such user has a home folder '
                    'on this machine: write the path in full.') from e


def write_all(contents: Mapping[pathlib.Path, bytes],
              mtime_ns: int | None = None) -> None:
  """Writes {path: bytes} to all files, or leaves all of them as they were.

  All bytes reach temporary files beside their targets before the first rename.
  Missing parent directories are made. A link stays: its target is written. The
  new files have the time of modification `mtime_ns`, by default the present.
  """
  staged = []
  with signals.unbroken():
    try:
      for parent in {pathlib.Path(os.path.realpath(path)).parent
                     for path in contents}:
        remove_leftovers(parent)
      for path, data in contents.items():
        path = pathlib.Path(os.path.realpath(path))
        if os.path.lexists(path) and not path.is_file():
          raise UserError(f'Cannot write {path}, which is not a regular file: '
                          'choose another path.')
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = beside(path)
        with open(temporary, 'xb') as f:
          staged.append((temporary, path))
          f.write(data)
        if mtime_ns is not None:
          os.utime(temporary, ns=(mtime_ns, mtime_ns))
      for temporary, path in staged:
        os.replace(temporary, path)
    except OSError as error:
      raise _unwritable(path, error) from error
    finally:
      for temporary, _ in staged:
        temporary.unlink(missing_ok=True)


def write_folder(folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
  """Writes a new folder with the files {name: bytes}, or nothing."""
  temporary = beside(folder)
  with signals.unbroken():
    try:
      remove_leftovers(folder.parent)
      temporary.mkdir(parents=True)
      for name, data in contents.items():
        (temporary / name).write_bytes(data)
      if os.path.lexists(folder):
        raise UserError(f'{folder} exists already: give a new folder.')
      os.rename(temporary, folder)
    except OSError as error:
      raise _unwritable(folder, error) from error
    finally:
      shutil.rmtree(temporary, ignore_errors=True)


def beside(path: pathlib.Path) -> pathlib.Path:
  """Returns a new path beside another; see `remove_leftovers`."""
  return path.parent / f'.tmp-{_HERE}-{os.getpid()}-{secrets.token_hex(4)}'


def remove_leftovers(folder: pathlib.Path) -> None:
  """Removes what killed processes of this machine were writing in a folder."""
  for path in folder.glob(f'.tmp-{_HERE}-*'):
    with contextlib.suppress(OSError, ValueError):
      try:
        os.kill(int(path.name.split('-')[2]), 0)
      except ProcessLookupError:
        (shutil.rmtree if path.is_dir() else os.unlink)(path)


def _unwritable(path, error):
  return UserError(f'Cannot write {path} ({error.strerror}): choose a path in '
                   'a directory you may write to.')


def write_json(path: pathlib.Path, value) -> None:
  text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
  write_all({path: f'{text}\n'.encode()})


def opened(path: str | os.PathLike) -> BinaryIO:
  """Opens a regular file for reading; OSError for a pipe or a device."""
  about = os.stat(path)  # before opening, which may block
  if stat.S_ISDIR(about.st_mode):
    raise IsADirectoryError(
        errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
  if not stat.S_ISREG(about.st_mode):
    raise OSError(errno.EINVAL, 'it is not a regular file', os.fspath(path))
  return open(path, 'rb')


def read(path: str | os.PathLike, most: int = MAX_SETTINGS) -> bytes:
  """Returns the content of a regular file; OSError if it exceeds `most` bytes.
  """
  with opened(path) as f:
    size = os.fstat(f.fileno()).st_size
    data = f.read(most + 1) if size <= most else b''  # the file may be growing
  if max(size, len(data)) > most:
    raise OSError(
        errno.EFBIG, f'it has more than {most:,} bytes', os.fspath(path))
  return data


def lock_file(path: pathlib.Path, mode: int = 0o666) -> BinaryIO:
  """Opens a file for `fcntl.flock`; follows no link, and empties no file."""
  try:
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
  except OSError as error:
    if error.errno == errno.ELOOP:
      raise OSError(errno.EINVAL, f'{path.name} is a link',
                    os.fspath(path)) from error
    raise
  return os.fdopen(number, 'r+b', 0)


def read_text(path: str | os.PathLike, most: int = MAX_SETTINGS) -> str:
  """Returns the text of a file in UTF-8, without a byte order mark."""
  return read(path, most).decode('utf-8-sig')


def read_json(path: pathlib.Path, most: int = MAX_SETTINGS):
  """Returns the JSON of a file of at most `most` bytes; None if there is none.
  """
  with foreign.reading(path, 'restore it or delete it, then repeat the command',
                       'is damaged'):
    try:
      text = read_text(path, most)
    except (FileNotFoundError, NotADirectoryError):
      return None
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(text):
  raise ValueError(f'{text} is not a JSON number')

