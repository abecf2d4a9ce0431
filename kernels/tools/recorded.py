"""Errors that were measured on a chip, of a record of `lra.costs --onchip`.

  python -m kernels.tools.recorded kernels/results/h200.json

prints the largest relative RMS error of each kernel over its cases as a table.
"""

import argparse
import json
import pathlib
import sys

from kernels.tools import errors

COLUMNS = ('out', 'state', *errors.GRADIENTS, 'masked')


def table(record):
  """Markdown lines.

  Args:
    record: as `lra.costs.onchip.run` returns it, with the stage `errors`.

  Raises:
    KeyError: it has none.
  """
  groups = {}
  for row in record['errors']['rows']:
    if 'skipped' not in row:
      groups.setdefault(tuple(row[k] for k in ('op', 'dtype', 'kernel')), []
                        ).append(row)  # fmt: skip
  lines = [
    f'{record["device"]}, JAX {record["errors"]["packages"]["jax"]}',
    '',
    '| op | dtype | kernel | Dh | forms | '
    + ' | '.join(COLUMNS)
    + ' | bound | cases within |',
    '|' + '---|' * (len(COLUMNS) + 7),
  ]
  place = {op: i for i, op in enumerate(errors.EVERY)}
  for op, dtype, kernel in sorted(
    groups, key=lambda key: (place[key[0]], key[1] != 'float32', key[2])
  ):
    rows = groups[op, dtype, kernel]
    forms = [form for form in errors.FORMS if form in _values(rows, 'form')]
    limits = (f'{errors.bound(n, dtype):.0e}' for n in ('out', 'dq'))
    good = sum(row.get('within', False) for row in rows)
    cells = [
      *(op, dtype, kernel),
      ', '.join(map(str, _values(rows, 'width'))),
      ', '.join(forms),
      *(_largest(rows, name) for name in COLUMNS),
      ' / '.join(limits),
      f'{good} of {len(rows)}',
    ]
    lines.append('| ' + ' | '.join(cells) + ' |')
  return lines


def _values(rows, name):
  return sorted({row[name] for row in rows})


def _largest(rows, name):
  """Empty where no row has it; what is not finite is the largest number."""
  found = [row[name] for row in rows if name in row]
  if sys.float_info.max in found:
    return 'not finite'
  return f'{max(found):.1e}' if found else ''


def main(argv=None):
  parser = argparse.ArgumentParser(
    prog='python -m kernels.tools.recorded',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('record', type=pathlib.Path)
  path = parser.parse_args(argv).record
  try:
    lines = table(json.loads(path.read_text(encoding='utf-8')))
  except (OSError, ValueError, KeyError, TypeError) as error:
    sys.exit(f'{path} is no record of errors on a chip ({error!r}): make one '
             'with python -m lra.costs --onchip.')  # fmt: skip
  print('\n'.join(lines))


if __name__ == '__main__':
  main()
