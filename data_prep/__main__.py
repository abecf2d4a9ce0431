"""Prepares, describes and measures data sets.

python -m lra.data_prep --task=text --source=aclImdb_v1.tar.gz
python -m lra.data_prep --task=text --describe
python -m lra.data_prep --task=text --baselines
"""

from lra.core import signals, streams

if __name__ == '__main__':  # before the slow imports
  streams.keep()
  signals.listen()

# ruff: noqa: E402
import argparse
import pathlib
import sys

from lra import data_prep
from lra.core import paths, tasks
from lra.core.errors import USER_ERROR, UserError, check_given
from lra.core.formats import escaped
from lra.data_prep import baselines, describe

_PROGRAM = 'python -m lra.data_prep'


def main(argv=None, program: str = _PROGRAM) -> int:
  """Runs the command line; returns the exit code.

  `program` are the words that start it, for help and errors.
  """
  try:
    with signals.interrupting():
      _run(_parsed(argv, program))
  except UserError as e:
    print(f'error: {escaped(str(e))}', file=sys.stderr)
    return USER_ERROR
  except signals.Stop:
    print('stopped; the same command starts again', file=sys.stderr)
    return signals.STOPPED
  except KeyboardInterrupt:
    print('\ninterrupted; nothing was prepared', file=sys.stderr)
    return signals.INTERRUPTED
  return 0


class _Parser(argparse.ArgumentParser):
  def error(self, message):
    raise UserError(f'{message}: see {self.prog} --help.')


def _parsed(argv, program):
  check_given(sys.argv[1:] if argv is None else argv)
  args = parser(program).parse_args(argv)
  if not args.task:
    raise UserError(
        f'No task is named: give --task, and see {program} --help.')
  return args


def parser(program: str = _PROGRAM) -> argparse.ArgumentParser:
  parser = _Parser(
      prog=program, description=__doc__.replace(_PROGRAM, program),
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--task', help=', '.join(sorted(tasks.TASKS)))
  parser.add_argument('--source', help='files to prepare from')
  parser.add_argument('--data_dir', help='folder of data sets; $TFDS_DATA_DIR '
                      'or ~/tensorflow_datasets by default')
  parser.add_argument('--describe', action='store_true',
                      help='print facts and examples of the data set')
  parser.add_argument('--baselines', action='store_true',
                      help='score trivial and linear methods, keep a record')
  parser.add_argument('--baselines_dir',
                      default=str(paths.results() / 'floors'),
                      help='folder for records of --baselines; by default '
                      'floors/ in the folder of results')
  # Earlier versions called baselines floors.
  parser.add_argument('--floors', dest='baselines', action='store_true',
                      default=argparse.SUPPRESS, help=argparse.SUPPRESS)
  parser.add_argument('--floors_dir', dest='baselines_dir',
                      default=argparse.SUPPRESS, help=argparse.SUPPRESS)
  return parser


def _run(args):
  folder = pathlib.Path(paths.local(args.baselines_dir, '--baselines_dir'))
  path = data_prep.prepare(args.task, args.data_dir, args.source)
  print(f'{args.task} is prepared in {path}' if path else
        f'{args.task} needs no preparation: it is generated on each read')
  if not (args.describe or args.baselines):
    return
  content = data_prep.read(args.task, args.data_dir)
  if args.describe:
    print(escaped(describe.describe(args.task, content)))
    if tasks.get(args.task).image:
      sheet_path = path.parent / 'examples.png'
      describe.write_sheet(content.splits['train'], sheet_path)
      print(f'examples are drawn in {sheet_path}')
  if args.baselines:
    record = baselines.measure(args.task, content)
    for name, floor in record['floors'].items():
      print(f'{100 * floor["accuracy"]:6.2f} %  {name}: {floor["how"]} '
            f'({floor["seconds"]} s)')
    print(f'recorded in {baselines.write(record, folder)}')


if __name__ == '__main__':
  sys.exit(main())
