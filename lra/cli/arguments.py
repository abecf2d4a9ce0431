"""Parsers of the words of `run_lra.py`, and types of their arguments."""

import argparse
import importlib
import math
import pathlib
from collections.abc import Callable, Sequence

from lra.core import files, paths
from lra.core.errors import UserError, choose

# Word -> what it does. Each but `data` is a module of this folder, with
# `add_arguments(parser)` and `main(args)`, which returns the exit code.
WORDS = {
    'train': 'train one run; the word may be left out',
    'runs': 'train the runs of a file, or show their progress',
    'evaluate': 'score the model of a run on its test split',
    'predict': 'classify the lines of a file',
    'compare': 'test the difference between two runs',
    'curves': 'draw the validation accuracies of runs',
    'export': 'write the model of a run, to share it',
    'board': 'write the leaderboard again, or check a record',
    'list': 'list models and tasks',
    'data': 'prepare data sets and score baselines',
}


class Parser(argparse.ArgumentParser):
  """A parser of one word's arguments, whose errors are UserErrors."""

  def __init__(self, word: str):
    module = importlib.import_module(f'lra.cli.{word}')
    program = ' '.join(paths.program())
    super().__init__(
        prog=f'{program} {word}', allow_abbrev=False,
        description=(module.__doc__ or '').replace('  lra ', f'  {program} '),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(self)
    self.set_defaults(main=module.main)

  def error(self, message: str):
    raise UserError(f'{message}: see {self.prog} --help.')


def parsed(word: str, arguments: Sequence[str]) -> argparse.Namespace:
  """Returns the parsed arguments of a word; `main` is its function."""
  parser = Parser(word)
  args, unknown = parser.parse_known_args(arguments)
  if unknown:
    flag = unknown[0].partition('=')[0]
    if not flag.startswith('-'):
      parser.error(f'{flag!r} is one argument too many')
    raise UserError(elsewhere(flag.lstrip('-'), word) or (
        f'{flag} is no flag of {parser.prog}: see its --help.'))
  return args


def flags_of(word: str) -> set[str]:
  """Returns the names of a word's flags, such as `lengths`."""
  if word == 'train':
    from lra.cli import options
    return options.names()
  if word == 'data':
    from lra.data_prep import __main__ as data
    parser = data.parser()
  else:
    parser = Parser(word)
  return {option.lstrip('-') for action in parser._actions
          for option in action.option_strings}


def elsewhere(name: str, here: str) -> str:
  """Returns a sentence if a flag belongs to another word than `here`, or ''."""
  program = ' '.join(paths.program())
  if name.startswith('config.'):
    return changes_nothing(name)
  if name in WORDS and name != here:
    return (f'--{name} is no flag: write {program} {name}, and see '
            f'{program} {name} --help.')
  for word, what in WORDS.items():
    if word != here and {name, name.removeprefix('no')} & flags_of(word):
      said = program if word == 'train' else f'{program} {word}'
      return (f'--{name} is a flag of {said} ({what}): see {program} {word} '
              '--help.')
  return ''


def changes_nothing(name: str) -> str:
  """Returns the error about the flag `config.FIELD` without a --config."""
  field = name.removeprefix('config.')
  return (f'--{name} changes a field of --config, which is not given: add '
          f'--config={paths.config_said("<model>")}:<task>, or write '
          f'set.{field} = ... in a file of runs.')


def unknown(word: str) -> UserError:
  """Returns the error about a word that is no command."""
  program = ' '.join(paths.program())
  if '.py' in word or ':' in word:
    return UserError(f'Unknown command {word!r}: a config is given as '
                     f'{program} --config={word}.')
  return UserError(f'Unknown command {word!r}: {choose(word, WORDS)}')


def path(text: str) -> pathlib.Path:
  """Type of an argument that names a file or a folder on this machine."""
  return files.expanded(pathlib.Path(paths.local(text)))


def number(kind: type, lowest: float,
           highest: float = math.inf) -> Callable[[str], float]:
  """Returns the type of a finite number in a range, such as `--jobs=2`."""
  def read(text):
    try:
      value = kind(text)
    except ValueError:
      value = math.nan
    if not (lowest <= value <= highest and math.isfinite(value)):
      most = '' if highest == math.inf else f' and at most {highest:,}'
      what = 'whole number' if kind is int else 'finite number'
      raise argparse.ArgumentTypeError(
          f'{text!r} is no {what} of at least {lowest}{most}')
    return value

  return read
