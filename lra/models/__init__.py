"""Models by name: `config.model.name` is a file of this folder.

A model's file defines `Mixer`; it may define `Block` where the mechanism is
not "a mixer in a Transformer block". Nothing is registered elsewhere.
"""

import functools
import importlib
import pathlib
import types

from lra.errors import UserError


@functools.cache
def names() -> tuple[str, ...]:
  """Names of all models: the files of this folder which define a Mixer."""
  return tuple(sorted(
      f.stem for f in pathlib.Path(__file__).parent.glob('*.py')
      if '\nclass Mixer(' in f.read_text(encoding='utf-8')))


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
