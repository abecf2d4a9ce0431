"""Prepares, describes and measures data sets.

python -m lra.data_prep --task=text --source=aclImdb_v1.tar.gz
python -m lra.data_prep --task=text --describe
python -m lra.data_prep --task=text --baselines

An own task, of a table with a column of texts and one of labels:

python -m lra.data_prep --csv=mine.csv --text=review --label=stars --name=mine
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
from lra.core import files, paths, tasks
from lra.core.errors import USER_ERROR, UserError, check_given
from lra.core.formats import escaped
from lra.data_prep import baselines, describe, table

_PROGRAM = 'python -m lra.data_prep'
_OF_TABLES = ('text', 'label', 'name', 'test_csv', 'length', 'encoding')


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
  check_given(sys.argv[1:] if argv is None else ())  # others are checked
  args = parser(program).parse_args(argv)
  given = [name for name in _OF_TABLES if getattr(args, name) is not None]
  if args.csv is None and given:
    raise UserError(f'--{given[0]} is for a table: give --csv too.')
  if args.csv is not None:
    for name in ('text', 'label', 'name'):
      if not getattr(args, name):
        raise UserError(f'--csv needs --{name}: see {program} --help.')
    if args.task or args.source:
      raise UserError('--csv makes a new task: leave out --task and --source.')
    args.task = args.name
  if not args.task:
    raise UserError(
        f'No task is named: give --task or --csv, and see {program} --help.')
  if args.baselines_dir and not args.baselines:
    raise UserError('--baselines_dir is for --baselines: give that flag too.')
  args.program = program
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
  parser.add_argument('--baselines_dir', help='folder for records of '
                      '--baselines; by default floors/ in the folder of '
                      'results')
  mine = parser.add_argument_group('an own task of a table')
  mine.add_argument('--csv', help='table with a line of column names; makes '
                    'the task --name of it')
  mine.add_argument('--text', metavar='COLUMN', help='column of the texts')
  mine.add_argument('--label', metavar='COLUMN', help='column of the classes')
  mine.add_argument('--name', help='name of the new task')
  mine.add_argument('--test_csv', help='table of the test split; by default a '
                    'tenth of --csv is the test split')
  mine.add_argument('--length', type=int, metavar='BYTES', help='bytes of a '
                    f'text to keep; by default at most {table.LENGTH}')
  mine.add_argument('--encoding', help='encoding of the tables; utf-8 by '
                    'default')
  # Earlier versions called baselines floors.
  parser.add_argument('--floors', dest='baselines', action='store_true',
                      default=argparse.SUPPRESS, help=argparse.SUPPRESS)
  parser.add_argument('--floors_dir', dest='baselines_dir',
                      default=argparse.SUPPRESS, help=argparse.SUPPRESS)
  return parser


def _run(args):
  folder = pathlib.Path(paths.local(
      args.baselines_dir or paths.results() / 'floors', '--baselines_dir'))
  path = _of_table(args) if args.csv else data_prep.prepare(
      args.task, args.data_dir, args.source)
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


def _of_table(args):
  """Makes the own task of a table; returns the folder of its data."""
  tables = [files.expanded(pathlib.Path(paths.local(one, '--csv')))
            for one in (args.csv, args.test_csv) if one]
  made, said = table.make(
      args.name, tables, args.text, args.label, length=args.length,
      encoding=args.encoding or 'utf-8')
  try:
    path = data_prep.prepare(args.name, args.data_dir)
    found = data_prep.read(args.name, args.data_dir).info['duplicates']
  except BaseException:
    if made:
      made.unlink()  # no half of a task stays
    raise
  equal = ', '.join(f'{n:,} in {name}' for name, n in found.items() if n)
  first = (f'{" ".join(paths.program())} '
           f'--config={paths.config_said("transformer")}:{args.name}')
  print(*said, *[f'equal texts: {equal}'] * bool(equal),
        *[f'wrote {made}'] * bool(made),
        'These commands score baselines, estimate the minutes of a first model '
        'and train it:',
        f'  {args.program} --task={args.name} --baselines',
        f'  {first} --trial', f'  {first}', sep='\n')
  return path


if __name__ == '__main__':
  sys.exit(main())
