"""Prints tables of a record that `python -m tools onchip` measured on a chip.

  python -m tools recorded kernels/results/h200.json

prints the largest relative RMS error of each kernel over its cases.
`--of=times` prints the times of kernels.
"""

import argparse
import json
import pathlib
import sys

from lra.core.errors import UserError
from tests.helpers import errors

COLUMNS = ('out', 'state', *errors.GRADIENTS, 'masked')


def table(record):
  """Returns markdown lines of the largest errors of a result of `onchip.run`.
  """
  groups = {}
  for row in record['errors']['rows']:
    if 'skipped' not in row:
      groups.setdefault(tuple(row[k] for k in ('op', 'dtype', 'kernel')),
                        []).append(row)
  lines = [f'{record["device"]}, JAX {record["errors"]["packages"]["jax"]}', '',
           '| op | dtype | kernel | Dh | forms | ' + ' | '.join(COLUMNS)
           + ' | bound | cases within |',
           '|' + '---|' * (len(COLUMNS) + 7)]
  place = {op: i for i, op in enumerate(errors.EVERY)}
  for op, dtype, kernel in sorted(
      groups, key=lambda key: (place[key[0]], key[1] != 'float32', key[2])):
    rows = groups[op, dtype, kernel]
    forms = [form for form in errors.FORMS if form in _values(rows, 'form')]
    limits = (f'{errors.bound(n, dtype):.0e}' for n in ('out', 'dq'))
    good = sum(row.get('within', False) for row in rows)
    cells = [*(op, dtype, kernel), ', '.join(map(str, _values(rows, 'width'))),
             ', '.join(forms), *(_largest(rows, name) for name in COLUMNS),
             ' / '.join(limits), f'{good} of {len(rows)}']
    lines.append(_line(cells))
  return lines


def _values(rows, name):
  return sorted({row[name] for row in rows})


def _largest(rows, name):
  """Returns the largest value of a column as text, '' if no row has it.

  A value that is not finite counts as the largest.
  """
  found = [row[name] for row in rows if row.get(name) is not None]
  if sys.float_info.max in found:
    return 'not finite'
  return f'{max(found):.1e}' if found else ''


def times(record):
  """Returns markdown lines of times by kernel, in microseconds, of a result of
  `benchmark.run`.
  """
  lines = [
      f'{record["device"]}, JAX {record["jax"]}, {record["dtype"]}, B L = '
      f'{record["tokens"]:,}, H = {record["heads"]}. Copy '
      f'{record["copy_bytes_per_s"] / 1e12:.3g} TB/s.', '',
      '| op | pass | L | Dh | kernel | us | x XLA | x best other | % of floor '
      '| relative RMS |', '|---|---|' + '--:|' * 2 + '---|' + '--:|' * 5]
  skipped = {}
  for row in record['rows']:
    if 'skipped' in row:
      skipped.setdefault((row['kernel'], row['skipped']))
      continue
    lines.append(_line([
        *(row[key] for key in ('op', 'pass', 'L', 'Dh', 'kernel')),
        *(_number(row[key], form) for key, form in (
            ('us', '.0f'), ('vs_xla', '.2f'), ('vs_best_other', '.2f'),
            ('percent_of_floor', '.0f'), ('error', '.1e')))]))
  return lines + [''] + [f'Not run: {name}: {why}' for name, why in skipped]


def _number(value, form):
  return '' if value is None else format(value, form)


def _line(cells):
  return f'| {" | ".join(map(str, cells))} |'


TABLES = {'errors': table, 'times': lambda record: times(record['kernels'] | {
    'jax': record['kernels']['packages']['jax']})}


def main(argv):
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('record', type=pathlib.Path)
  parser.add_argument('--of', choices=TABLES, default='errors')
  args = parser.parse_args(argv)
  try:
    lines = TABLES[args.of](
        json.loads(args.record.read_text(encoding='utf-8')))
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(
        f'{args.record} is no record of {args.of} on a chip ({error!r}): make '
        'one with python -m tools onchip.') from error
  print('\n'.join(lines))
