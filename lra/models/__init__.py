"""Models by name: `config.model.name` is a file of this folder.

A model's file defines `Mixer`; it is registered nowhere else. This folder holds
only models: code that models share is in `lra/nn`.
"""

import dataclasses
import importlib
import os
import pathlib
import types
from typing import Any

from lra import signals
from lra.errors import UserError, explained

FOLDER = pathlib.Path(__file__).resolve().parent

# Fields of a mixer that the encoder fills in.
GIVEN = ('dtype', 'layer', 'num_layers', 'full_length', 'parent', 'name')
_PLAIN = (bool, int, float, str, tuple, list, dict)


def names(folder: str | os.PathLike = FOLDER) -> tuple[str, ...]:
  """Returns the names of all models: files of a folder except `_this.py`."""
  return tuple(sorted(path.stem for path in pathlib.Path(folder).glob('*.py')
                      if not path.stem.startswith('_')))


def module(name: str) -> types.ModuleType:
  """Imports the file of model `name`.

  Raises:
    UserError: no such model (the message lists the known ones), or its file
      cannot be imported or defines no Mixer.
  """
  known = names(FOLDER)
  if name not in known:
    raise UserError(
        f'Unknown model {name!r}: set config.model.name to one of '
        f'{", ".join(known)}.')
  said = f'lra/models/{name}.py'
  try:
    made = importlib.import_module(f'lra.models.{name}')
  except UserError:
    raise
  except signals.Stop:
    raise
  except (Exception, SystemExit, KeyboardInterrupt) as e:
    # Whatever somebody's file may do; Ctrl-C is a `Stop`, or nobody listens.
    if isinstance(e, KeyboardInterrupt) and not signals.listening():
      raise
    raise UserError(
        explained(str(FOLDER / f'{name}.py'), e, said)) from e
  mixer = getattr(made, 'Mixer', None)
  if not (isinstance(mixer, type) and dataclasses.is_dataclass(mixer)):
    raise UserError(f'{said} has no mixer: define a class Mixer(nn.Module), or '
                    'derive one from lra.nn.mixer.HeadMixer.')
  return made


def defaults(name: str) -> dict[str, Any]:
  """Returns {argument: default} of a model's mixer.

  Arguments without a default are left out, and those whose default is no plain
  value, such as a function: the JSON file of a config cannot hold them.

  Raises:
    UserError: see `module`.
  """
  found = {}
  for field in dataclasses.fields(module(name).Mixer):
    made = field.default_factory is not dataclasses.MISSING
    default = field.default_factory() if made else field.default
    if field.name not in GIVEN and (
        default is None or isinstance(default, _PLAIN)):
      found[field.name] = default
  return found
