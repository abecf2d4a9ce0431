"""Scores the model of a run on its test split, beside the recorded scores.

  lra evaluate runs/listops_mini/simpletron/b2e07619-s0
  lra evaluate RUN --lengths=64,128,40-256
"""

import pathlib
from collections.abc import Sequence

from lra.cli import arguments
from lra.core import environment
from lra.core.errors import UserError
from lra.schema import result as results
from lra.share import hub


def add_arguments(parser):
  parser.add_argument('run', metavar='RUN', help='a run directory, a '
                      'checkpoint, an exported folder or hf:USER/NAME',
                      type=arguments.path)
  parser.add_argument('--lengths', help='score generated sequences of these '
                      'lengths in tokens, such as 64,128,40-256; for probes '
                      'and ListOps')
  parser.add_argument('--quantise', choices=['int8'], help='compare the model '
                      'with its int8 version by accuracy, bytes and seconds; '
                      'needs the extra int8')


def main(args) -> int:
  environment.check_xla_flags()
  if args.quantise:
    if args.lengths:
      raise UserError('--quantise scores the test split: leave out --lengths.')
    from lra.share import quantised
    print(quantised.measure(args.run).text())
  elif args.lengths:
    print(longer(args.run, args.lengths.split(',')))
  else:
    print(evaluate(args.run))
  return 0


def evaluate(folder: pathlib.Path) -> str:
  """Returns the test scores of a model of `api.load`, and the recorded ones."""
  trained, recorded = _loaded(folder)
  scores = trained.evaluate('test', same_data=True)
  lines = [f'{trained.config.model.name} on {trained.config.task}, parameters '
           f'of step {trained.step}']
  for name, value in scores.items():
    if isinstance(value, float):
      before = recorded and recorded.test and getattr(recorded.test, name, None)
      known = '' if before is None else f'  (recorded {before:.4f})'
      lines.append(f'  {name:10}{value:8.4f}{known}')
  return '\n'.join(lines)


def _loaded(folder):
  """Returns a model of `api.load`, and its recorded result or None."""
  from lra.share import api
  folder = hub.place(folder)
  return api.load(folder), results.read_if_there(folder / 'result.json')


def longer(folder: pathlib.Path, lengths: Sequence[str]) -> str:
  """Returns the scores of a model on sequences of such lengths as '40-256'."""
  trained, recorded = _loaded(folder)
  task = trained.program.objective.task
  lines = [f'{trained.config.model.name} on {task.name}, trained on up to '
           f'{task.seq_len} tokens, parameters of step {trained.step}',
           f'  {"tokens":10}{"accuracy":>10}{"scaled":>9}']
  for name in map(str.strip, lengths):
    accuracy = trained.evaluate_longer(name)['accuracy']
    known = recorded and recorded.longer.get(name)
    lines.append(
        f'  {name:10}{accuracy:10.4f}{task.scaled(accuracy):9.4f}'
        + (f'  (recorded {known.accuracy:.4f})' if known else ''))
  lines.append('Scaled accuracy is 0 for guessing one of '
               f'{task.num_classes} classes and 1 for no error.')
  return '\n'.join(lines)
