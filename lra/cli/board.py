"""Writes the leaderboard again from its records.

  lra board --html=site
  lra board --check=lra/results/runs/listops_mini/simpletron-b2e07619-s0.json
"""

import pathlib
import sys

from lra.cli import arguments
from lra.core import paths
from lra.core.errors import USER_ERROR, UserError


def add_arguments(parser):
  one = parser.add_mutually_exclusive_group()
  one.add_argument('--html', metavar='FOLDER', help='also write HTML pages to '
                   'this folder, the first as index.html', type=arguments.path)
  one.add_argument('--studies', action='store_true', help='write the page of '
                   'studies, docs/studies.md, instead')
  one.add_argument('--check', metavar='RECORD', help='check a record before '
                   'you send it: its form, settings, commit, data and the '
                   'other records', type=arguments.path)
  add_place(parser)


def add_place(parser) -> None:
  """Adds the flags that name the files of a leaderboard; see `place`."""
  parser.add_argument('--results_dir', metavar='FOLDER', help='folder of the '
                      'records, baselines and figures; %(default)s by default',
                      default=paths.results(), type=arguments.path)
  parser.add_argument('--page', metavar='FILE', help='the leaderboard file to '
                      'write; by default leaderboard.md, or leaderboard.md in '
                      '--results_dir if that is given', type=arguments.path)


def place(results_dir: pathlib.Path, page: pathlib.Path | None = None):
  """Returns the `publish.Place` of a leaderboard."""
  from lra.board import publish
  from lra.cli import repeat
  return publish.Place(
      results_dir, page or paths.page_of(results_dir), repeat.command)


def main(args) -> int:
  if args.check:
    return check(args.check, args.results_dir)
  if args.studies:
    from lra.many import study
    study.publish(place(args.results_dir, args.page))
    return 0
  from lra.board import publish
  publish.regenerate(place(args.results_dir, args.page), args.html)
  return 0


def check(path: pathlib.Path, results_dir: pathlib.Path) -> int:
  """Prints the checks of a record; returns the exit code."""
  from lra.board import submission
  if not path.is_file():
    raise UserError(f'--check={path} is no file: give a record, such as '
                    'lra/results/runs/<task>/<model>-<config hash>-s0.json.')
  checks = submission.check(path, results_dir)
  for one in sorted(checks, key=lambda one: not one.passed):
    if one.passed:
      print(f'ok    {one.name:9} {one.what}', flush=True)
    else:
      print(f'error: {one.name}: {one.what}', file=sys.stderr)
  return 0 if all(one.passed for one in checks) else USER_ERROR
