"""Writing files so that a reader never sees half of one."""

import json
import os
import pathlib
import tempfile
from collections.abc import Mapping

from lra import signals
from lra.errors import UserError


def expanded(path: pathlib.Path) -> pathlib.Path:
  """A path with its `~` or `~user` replaced; UserError if there is no such."""
  try:
    return path.expanduser()
  except RuntimeError as e:
    raise UserError(f'{path} begins with the home folder of a user who has '
                    'none here: choose another path.') from e


def write_all(contents: Mapping[pathlib.Path, bytes]) -> None:
  """Writes every file, or leaves all of them as they were.

  All bytes reach temporary files beside their targets before the first rename,
  so a full disk or an unwritable directory changes nothing.

  Args:
    contents: path -> bytes; missing parent directories are made.

  Raises:
    UserError: a file cannot be written, or is a folder or a device.
  """
  with signals.unbroken():
    _write_all(contents)


def _write_all(contents):
  staged = []
  try:
    for path, data in contents.items():
      # Through a link: what it leads to is written, and the link stays.
      path = pathlib.Path(os.path.realpath(path))
      if os.path.lexists(path) and not path.is_file():
        raise UserError(
            f'Cannot write {path}, which is no regular file: choose another '
            'path.')
      _stage(path, data, staged)
    for temporary, path in staged:
      os.replace(temporary, path)
  except OSError as error:
    raise UserError(
        f'Cannot write {path} ({error.strerror}): choose a path in a directory '
        'you may write to.') from error
  finally:
    for temporary, _ in staged:
      temporary.unlink(missing_ok=True)


def _stage(path, data, staged):
  path.parent.mkdir(parents=True, exist_ok=True)
  handle, name = tempfile.mkstemp(dir=path.parent, prefix='.tmp-')
  staged.append((pathlib.Path(name), path))
  with os.fdopen(handle, 'wb') as f:
    f.write(data)
  # mkstemp makes files only the owner reads; these are meant to be shared.
  os.chmod(name, 0o644)


def write_json(path: pathlib.Path, value) -> None:
  """Writes indented JSON, all or nothing; UserError where it cannot."""
  text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
  write_all({path: f'{text}\n'.encode()})


def read_json(path: pathlib.Path):
  """Reads JSON; None where there is no file.

  Raises:
    UserError: the file cannot be read or is not JSON; NaN and Infinity are
      not.
  """
  try:
    return json.loads(path.read_text(encoding='utf-8'),
                      parse_constant=_refuse_constant)
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError, RecursionError) as e:
    raise UserError(
        f'{path} is damaged ({getattr(e, "strerror", None) or e}): restore it '
        'or delete it, then repeat the command.') from e


def _refuse_constant(text):
  raise ValueError(f'{text} is no JSON number')
