"""Classifies the examples in a file with the model of a run.

Each line of FILE has one example: a text, two texts with a tab between them, or
the file name of an image.

  lra predict reviews.txt runs/text/transformer/1f2e3d4c-s0
  lra predict expressions.txt lra/examples/models/simpletron
"""

import pathlib

from lra.cli import arguments
from lra.core import environment, files, foreign
from lra.core.errors import UserError
from lra.core.formats import escaped

_LINE = 60  # most characters to print of an example


def add_arguments(parser):
  parser.add_argument('file', metavar='FILE', type=arguments.path)
  parser.add_argument('run', metavar='RUN', help='a run directory, a '
                      'checkpoint, an exported folder or hf:USER/NAME',
                      type=arguments.path)


def main(args) -> int:
  environment.check_xla_flags()
  print(escaped(predict(args.file, args.run)))
  return 0


def predict(path: pathlib.Path, folder: pathlib.Path) -> str:
  """Returns class, probability and example for each line of a file.

  Empty lines stay empty.
  """
  from lra.data_prep.encode import NoExample
  from lra.share import api
  lines = _lines(path)
  trained = api.load(folder)
  dual = trained.program.objective.task.dual
  places = [i for i, line in enumerate(lines) if line]
  examples = [lines[i].split('\t') if dual else lines[i] for i in places]
  try:
    found = trained.predict(examples)
  except NoExample as e:
    raise UserError(
        f'{path}, line {places[e.number] + 1} is not an example of '
        f'{trained.config.task} ({e.why}): correct that line.') from e
  shown = dict(zip(places, found, strict=True))
  return '\n'.join(
      f'{shown[i].name}\t{shown[i].probabilities[shown[i].label]:.4f}\t'
      f'{_short(line)}' if i in shown else '' for i, line in enumerate(lines))


def _lines(path):
  """Returns the lines of a text file, which end with \\n or \\r\\n only."""
  with foreign.reading(path, 'give a text file with one example a line'):
    text = files.read_text(path, files.MAX_LINES)
  lines = [line.removesuffix('\r') for line in text.split('\n')]
  if not any(lines):
    raise UserError(f'{path} is empty: write one example a line.')
  return lines if lines[-1] else lines[:-1]


def _short(line):
  text = ' | '.join(line.split('\t'))
  return text if len(text) <= _LINE else f'{text[:_LINE - 1]}…'
