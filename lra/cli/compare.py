"""Tests the difference between two runs, and shows the settings that differ.

A and B are run directories with a result, or records.

  lra compare runs/listops_mini/simpletron/b2e07619-s0 runs/listops_mini/gla/...
  lra compare A.json B.json
"""

import pathlib

from lra.board import statistics
from lra.board.rows import Row, shown
from lra.cli import arguments
from lra.core.errors import UserError
from lra.core.formats import escaped, percent, points
from lra.schema import fields, identity
from lra.schema import result as results


def add_arguments(parser):
  for name in 'AB':
    parser.add_argument(name.lower(), metavar=name, type=arguments.path)


def main(args) -> int:
  print(escaped(compare(args.a, args.b)))
  return 0


def compare(first: pathlib.Path, second: pathlib.Path) -> str:
  """Returns fields that differ, scores with intervals and a significance test.

  Raises:
    UserError: a run cannot be read, is not finished or is not a classifier, or
      the runs have different test splits.
  """
  runs = [results.classified(path) for path in (first, second)]
  a, b = runs
  if (a.task, a.data_fingerprint) != (b.task, b.data_fingerprint):
    raise UserError(
        f'{first} has {a.task} (data {a.data_fingerprint[:8]}) and {second} '
        f'has {b.task} (data {b.data_fingerprint[:8]}): only runs on one test '
        'split can be compared.')
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
