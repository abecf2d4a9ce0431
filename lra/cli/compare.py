"""Tests whether runs differ: two with their settings, or more by their ranks.

A, B and more are run directories with a result, records, or folders of run
directories. Runs that differ in their seed only are one row.

  lra compare A.json B.json
  lra compare runs/listops_mini/simpletron runs/listops_mini/gla
"""

import collections
import pathlib
from collections.abc import Sequence

from lra.board import statistics, words
from lra.board.rows import Row, shown
from lra.cli import arguments
from lra.core.errors import UserError
from lra.core.formats import escaped, percent, points
from lra.many import choose
from lra.schema import fields, identity
from lra.schema import result as results


def add_arguments(parser):
  for name in 'AB':
    parser.add_argument(name.lower(), metavar=name, type=arguments.path)
  parser.add_argument('more', metavar='MORE', nargs='*', type=arguments.path)


def main(args) -> int:
  print(escaped(compare([args.a, args.b, *args.more])))
  return 0


def compare(given: Sequence[pathlib.Path]) -> str:
  """Returns two runs' differences in settings and scores, or ranks of rows.

  Raises:
    UserError: a run cannot be read, is not finished or is not a classifier, or
      the runs have different test splits.
  """
  found = [(path, results.classified(path))
           for some in given for path in _runs(some)]
  (first, a), *others = found
  for path, b in others:
    if (a.task, a.data_fingerprint) != (b.task, b.data_fingerprint):
      raise UserError(
          f'{first} has {a.task} (data {a.data_fingerprint[:8]}) and {path} '
          f'has {b.task} (data {b.data_fingerprint[:8]}): only runs on one '
          'test split can be compared.')
  runs = [run for _, run in found]
  if len(runs) == 2:
    return _two(*runs)
  seeds = collections.defaultdict(list)
  for run in runs:
    seeds[identity.config_hash(run.config)].append(run)
  if len(seeds) < 2:
    raise UserError(f'The runs of {", ".join(map(str, given))} differ in '
                    'their seed only: give runs of other settings too.')
  rows = [Row(some) for some in seeds.values()]
  names = choose.names([identity.flatten(row.config) for row in rows])
  return '\n'.join(words.ranks(a.task, list(zip(names, rows, strict=True))))


def _runs(path):
  """Returns a run or a record, or the finished runs of a folder."""
  if not path.is_dir() or (path / 'result.json').exists():
    return [path]
  found = sorted(file.parent for file in path.glob('*/result.json'))
  return found or [path]


def _two(*runs):
  flat, filled = zip(*(_filled(r.config) for r in runs), strict=True)
  lines = [('', 'A', 'B'), *(
      (name, *texts) for name in sorted({*flat[0], *flat[1]})
      for texts in [[shown(values[name]) if name in values else 'unset'
                     for values in flat]] if texts[0] != texts[1])]
  notes = [
      f'{len(names)} fields did not exist yet when {run} was trained; '
      'their values describe how that version trained.'
      for run, names in zip('AB', filled, strict=True) if names]
  rows = [Row([r]) for r in runs]
  scores = [
      ('test accuracy %', *(percent(row.mean, row.digits) for row in rows)),
      ('95% interval over test examples', *(' to '.join(
          percent(end, row.digits) for end in row.interval[:2])
                                            for row in rows))]
  return '\n'.join([*map(_line, lines), *notes, *map(_line, scores),
                    *_verdict(*rows)])


def _line(cells):
  return '{:34}{:>22}{:>22}'.format(*cells)


def _filled(config):
  """Returns the fields of a config, and the names of those added since then.

  A field that was added later gets the value that describes earlier versions.
  """
  flat = identity.flatten(config)
  later = {name: value for name, value in fields.added(
      flat.get('model.name', '')).items() if name not in flat}
  return {**flat, **later}, sorted(later)


def _verdict(*rows):
  a, b = (row.sample for row in rows)
  p = statistics.p_value(a, b)
  difference = points(b.accuracies[0] - a.accuracies[0],
                      min(row.digits for row in rows))
  paired = a.correct is not None and b.correct is not None
  yield f'B - A: {difference} points'
  if paired:
    only_a, only_b = (int((x.correct & ~y.correct).sum())
                      for x, y in ((a, b), (b, a)))
    yield f'right in A only: {only_a:,}; in B only: {only_b:,}'
  test = ('McNemar, exact, on the same examples' if paired else
          'Fisher, exact: a record lacks the answers to single examples')
  verdict = 'differ' if p < 0.05 else 'do not differ'
  yield (f'p = {p:.3g} ({test}): these two runs {verdict} significantly at 5%; '
         'other seeds may give another result.')
  yield ('This test is about these two networks. The leaderboard compares all '
         'seeds of its rows and corrects for their number, so its ranks may '
         'differ.')
