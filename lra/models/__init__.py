"""Models by name: `config.model.name` is a file of this folder.

A model's file defines `Mixer`; it is registered nowhere else. Close variants
share a file, which `SHARED` names. This folder holds only models: code of a
family is in `lra/nn`; a few models build on another one. A notebook can
`register` a mixer without a file.
"""

import dataclasses
import importlib
import os
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from lra.core import environment, signals
from lra.core.errors import UserError, choose, explained

FOLDER = pathlib.Path(__file__).resolve().parent

# Files that hold several models: file -> {name: its class}.
SHARED = {
    'gqa': {'gqa': 'Mixer', 'mqa': 'MultiQuery'},
    'simpletron': {'simpletron': 'Mixer', 'simpletron_res': 'Res',
                   'simpletron_resl': 'ResL'},
    'sliding_window': {'sliding_window': 'Mixer',
                       'sliding_window_mqa': 'MultiQuery'},
    'sparse_transformer': {'sparse_fixed': 'Fixed',
                           'sparse_strided': 'Strided'},
    'spectral': {'fastfood_prf': 'FastfoodPrf', 'fastfood_rks': 'FastfoodRks',
                 'generative_prf': 'GenerativePrf',
                 'generative_rks': 'GenerativeRks', 'gmm_prf': 'GmmPrf',
                 'gmm_rks': 'GmmRks'},
}
# Fields of a mixer that the encoder fills in.
GIVEN = ('dtype', 'layer', 'num_layers', 'full_length', 'dropout',
         'tie_dropout', 'parent', 'name')


class About(NamedTuple):
  """Facts about a model, for lists; `lra.board.catalogue` reads them as text.

  A model's file sets `ABOUT`. Of models that share a file, a class may have an
  `ABOUT` of its own.

  Attributes:
    family: kind of mechanism; one section of the lists.
    cost: its time (and memory) as text for people.
    time, memory: exponents of L in both, 1, 1.5 or 2, for programs.
    kernels: the choices of `config.model.kernel` besides `auto`.
    mixes_padding: whether the amount of padding can change scores.
  """
  family: str
  cost: str
  time: float = 1
  memory: float = 1
  kernels: tuple[str, ...] = ()
  mixes_padding: bool = False


_registered: dict[str, type] = {}
_PLAIN = (bool, int, float, str, tuple, list, dict)


def names(folder: str | os.PathLike = FOLDER) -> tuple[str, ...]:
  """Returns the names of all models, by the files of `folder` without `_*`."""
  # Each config calls this, and a page reads hundreds of configs: `pathlib`
  # would be too slow.
  stems = (file.removesuffix('.py') for file in os.listdir(folder)
           if file.endswith('.py') and not file.startswith('_'))
  return tuple(sorted(
      name for stem in stems for name in SHARED.get(stem, [stem])))


def register(name: str) -> Callable[[type], type]:
  """Returns a decorator that makes a mixer a model of this process.

  It is for notebooks: `lra.configs.base.get_config(task, name)` makes a config
  of the model. A second mixer of this name replaces the first.

  Raises:
    UserError: a file has a model of this name, or the class is no Flax module.
  """
  if name in names():
    raise UserError(f'{place(name)[0]}.py in lra/models has the model {name}: '
                    'register yours under another name.')

  def add(cls):
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
      raise UserError(f'{cls!r} is no mixer: register a class derived from '
                      'flax.linen.Module or lra.nn.mixer.HeadMixer.')
    _registered[name] = cls
    return cls

  return add


def place(name: str) -> tuple[str, str]:
  """Returns the file of a model, without `.py`, and the class in it."""
  return next(((file, classes[name]) for file, classes in SHARED.items()
               if name in classes), (name, 'Mixer'))


def module(name: str) -> types.ModuleType:
  """Imports the file of model `name`; see `mixer`."""
  if name in _registered:
    return sys.modules[_registered[name].__module__]
  known = names(FOLDER)
  if name not in known:
    raise UserError(
        f'Unknown model {name!r} in config.model.name: {choose(name, known)}')
  file, _ = place(name)
  try:
    return importlib.import_module(f'lra.models.{file}')
  except (UserError, signals.Stop):
    raise
  except (Exception, SystemExit, KeyboardInterrupt) as e:
    # A model's file may raise anything. Ctrl-C raises `Stop` if signals are
    # handled, else KeyboardInterrupt.
    if isinstance(e, KeyboardInterrupt) and not signals.listening():
      raise
    raise UserError(environment.blamed(e) or explained(
        str(FOLDER / f'{file}.py'), e, f'lra/models/{file}.py')) from e


def mixer(name: str) -> type:
  """Returns the class of model `name`.

  Raises:
    UserError: there is no such model (the message lists the known ones), or its
      file cannot be imported or defines no mixer.
  """
  file, cls = place(name)
  found = _registered.get(name) or getattr(module(name), cls, None)
  if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
    raise UserError(
        f'lra/models/{file}.py has no mixer: define a class {cls}(nn.Module), '
        'or derive one from lra.nn.mixer.HeadMixer.')
  return found


def defaults(name: str) -> dict[str, Any]:
  """Returns {argument: default} of a model's mixer, for plain values.

  The JSON file of a config cannot hold other defaults, such as a function.
  """
  found = {}
  for field in dataclasses.fields(mixer(name)):
    made = field.default_factory is not dataclasses.MISSING
    default = field.default_factory() if made else field.default
    if field.name not in GIVEN and (
        default is None or isinstance(default, _PLAIN)):
      found[field.name] = default
  return found
