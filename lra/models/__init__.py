"""Models by name: `config.model.name` is a file of this folder.

A model's file defines `Mixer`. Nothing is registered elsewhere, and every file
here is a model: what models share is in `lra/nn`.
"""

import importlib
import os
import pathlib
import types

from lra.errors import UserError

FOLDER = pathlib.Path(__file__).resolve().parent


def names(folder: str | os.PathLike = FOLDER) -> tuple[str, ...]:
  """Names of all models: the files of a folder, but those like `_this.py`."""
  return tuple(sorted(path.stem for path in pathlib.Path(folder).glob('*.py')
                      if not path.stem.startswith('_')))


def module(name: str) -> types.ModuleType:
  """Imports the file of model `name`.

  Raises:
    UserError: no such model; the message lists the known ones.
  """
  if name not in names():
    raise UserError(
        f'Unknown model {name!r}: config.model.name is one of '
        f'{", ".join(names())}.')
  return importlib.import_module(f'lra.models.{name}')
