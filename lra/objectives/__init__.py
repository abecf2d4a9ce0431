"""Training objectives by name: `config.objective` is a file of this folder.

An objective's file defines `Objective`, a subclass of `base.Objective`. It owns
the output head, the loss, the metrics and the shapes of batches; the training
step and the loop depend on none of them.
"""

import importlib
import pathlib

from lra.core.errors import UserError, choose
from lra.objectives.base import Objective


def names() -> tuple[str, ...]:
  return tuple(sorted(
      f.stem for f in pathlib.Path(__file__).parent.glob('*.py')
      if f.stem not in ('__init__', 'base')))


def get(name: str) -> type[Objective]:
  """Returns a class; raises UserError, which lists the names, if there is none.
  """
  if name not in names():
    raise UserError(
        f'config.objective={name!r} is not possible: {choose(name, names())}')
  return importlib.import_module(f'lra.objectives.{name}').Objective
