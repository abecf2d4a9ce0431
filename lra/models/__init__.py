"""Models by name: `config.model.name` is a file of this folder.

A model's file defines `Mixer`; it is registered nowhere else. This folder holds
only models: code that models share is in `lra/nn`.
"""

import dataclasses
import importlib
import os
import pathlib
import types

from lra.errors import UserError, explained
from lra.system import signals

FOLDER = pathlib.Path(__file__).resolve().parent


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
