"""Finds the command that a flag belongs to, for errors about unknown flags."""

import importlib
import sys

from absl import flags

from lra.core import paths
from lra.run import loader
from lra.schema.fields import FIELDS

_OPTIONS, _COSTS = 'lra.cli.options', 'tools.__main__'
# Word after the program's name -> what the command does.
COMMANDS = {'': 'trains and compares models', 'data': 'prepares data sets',
            'costs': 'measures times and memory'}


def hint(name: str) -> str:
  """Returns a sentence if a flag belongs to another command than this one.

  Args:
    name: a flag that this command, which trains or measures, does not have.
  """
  word = _command(name)
  if word is None and name.startswith('no'):  # of a bool
    name = name.removeprefix('no')
    word = _command(name)
  if word is None:
    return ''
  program = ' '.join([*paths.program(), word]).rstrip()
  return (f'--{name} is a flag of another command, {program}, which '
          f'{COMMANDS[word]}: see {program} --help.')


def field_hint(name: str) -> str:
  """Returns the end of an error if an unknown flag is a field of the config.

  Args:
    name: the flag, such as `batch_size` or `lr`.
  """
  field = loader.likeliest(name, FIELDS)
  return field and f': the field is --config.{field}.'


def _command(name):
  """Returns the word of the command with this flag; None if there is none."""
  from lra.data_prep import __main__ as data
  if f'--{name}' in data.parser().format_help().split():
    return 'data'
  # The flags of the other command are defined by importing it.
  other = _COSTS if _OPTIONS in sys.modules else _OPTIONS
  importlib.import_module(other)
  if name not in flags.FLAGS:
    return None
  return 'costs' if other == _COSTS else ''
