"""Prints tables of a record that `python -m tools onchip` measured on a chip.

  python -m tools recorded kernels/results/h200.json

prints the largest relative RMS error of each kernel over its cases.
`--of=times` prints the times of kernels, `--of=layers` those of whole layers.
"""

import argparse
import json
import pathlib
import sys

from tools import errors

COLUMNS = ('out', 'state', *errors.GRADIENTS, 'masked')


def table(record):
  """Returns markdown lines of the largest errors.

  `record` is a result of `tools.onchip.run`. Raises KeyError if it lacks
  the stage `errors`.
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
  found = [row[name] for row in rows if name in row]
  if sys.float_info.max in found:
    return 'not finite'
  return f'{max(found):.1e}' if found else ''


def times(record):
  """Returns a table of the kernels' times in microseconds, a line per shape.

  `record` is a result of `tools.onchip.run`. Raises KeyError if it lacks
  the stage `kernels`.
  """
  run = record['kernels']
  timed = [row for row in run['rows'] if 'us' in row]
  names = list(dict.fromkeys(row['kernel'] for row in timed))
  own = [name for name in names if name.startswith('pallas')]
  others = 'torch', 'flash-linear-attention', 'jax-linear-attention'
  packages = (f'{name} {version}' for name, version in run['packages'].items()
              if name in others)
  lines = [
      f'{record["device"]}, JAX {run["packages"]["jax"]}, '
      f'{", ".join(packages)}; {run["dtype"]}, B L = {run["tokens"]:,}, '
      f'H = {run["heads"]}. Copy {run["copy_bytes_per_s"] / 1e12:.3g} TB/s.',
      '',
      f'| op | pass | L | Dh | {" | ".join(f"{name}, us" for name in names)} '
      '| best of ours | % of floor | x XLA | x best other | its relative RMS |',
      '|---|---|' + '--:|' * (2 + len(names)) + '---|' + '--:|' * 4]
  groups = {}
  for row in timed:
    which = tuple(row[key] for key in ('op', 'pass', 'L', 'Dh'))
    groups.setdefault(which, {})[row['kernel']] = row
  for which, rows in groups.items():
    us = {name: row['us'] for name, row in rows.items()}
    best = min((name for name in own if name in us), key=us.get, default=None)
    cells = [f'{us[name]:.0f}' if name in us else '' for name in names]
    if best is None:
      cells += [''] * 5
    else:
      # A kernel without an error computes another function.
      others = [us[n] for n in us if n not in own and rows[n]['error']]
      cells += [best, _number(rows[best]['percent_of_floor'], '.0f'),
                _number(rows[best]['vs_xla'], '.2f'),
                _number(min(others) / us[best] if others else None, '.2f'),
                _largest([rows[best]], 'error')]
    lines.append(_line([*which, *cells]))
  return lines


def layers(record):
  """Returns markdown lines of the times of whole layers, one per layer.

  `record` is a result of `tools.onchip.run`. Raises KeyError if it lacks
  the stage `layers`.
  """
  run = record['layers']
  lines = [f'{record["device"]}, JAX {run["packages"]["jax"]}, bfloat16.', '',
           '| layer | pass | B | L | H | Dh | kernel | us | x XLA | % of floor '
           '| relative RMS |',
           '|---|---|' + '--:|' * 4 + '---|' + '--:|' * 4]
  for row in run['rows']:
    cells = [
        *(row[key] for key in ('layer', 'pass', 'B', 'L', 'H', 'Dh', 'kernel')),
        f'{row["us"]:.0f}', f'{row["vs_xla"]:.2f}',
        f'{row["percent_of_floor"]:.0f}', _largest([row], 'error')]
    lines.append(_line(cells))
  return lines


def every_time(record):
  """Returns markdown lines of all rows of `tools.benchmark.run`.
  """
  lines = [f'{record["device"]}, JAX {record["jax"]}, {record["dtype"]}, '
           f'B L = {record["tokens"]:,}, H = {record["heads"]}. Copy '
           f'{record["copy_bytes_per_s"] / 1e12:.3g} TB/s; a call costs the '
           'host '
           f'{record["dispatch_us"]:.0f} us.',
           '',
           '| op | pass | L | Dh | kernel | us | x XLA | x best other '
           '| % of floor | relative RMS |',
           '|---|---|---|---|---|---|---|---|---|---|']
  skipped = {}
  for row in record['rows']:
    if 'skipped' in row:
      skipped.setdefault((row['kernel'], row['skipped']))
      continue
    cells = [*(str(row[key]) for key in ('op', 'pass', 'L', 'Dh', 'kernel')),
             _number(row['us'], '.0f'), _number(row['vs_xla'], '.2f'),
             _number(row['vs_best_other'], '.2f'),
             _number(row['percent_of_floor'], '.0f'),
             _number(row['error'], '.1e')]
    lines.append(_line(cells))
  lines += [''] + [f'Not run: {name}: {why}' for name, why in skipped]
  return lines


def _number(value, form):
  return '' if value is None else format(value, form)


def _line(cells):
  return f'| {" | ".join(map(str, cells))} |'


TABLES = {'errors': table, 'times': times, 'layers': layers}


def main(argv):
  parser = argparse.ArgumentParser(
      prog='python -m tools recorded', description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('record', type=pathlib.Path)
  parser.add_argument('--of', choices=TABLES, default='errors')
  args = parser.parse_args(argv)
  path = args.record
  try:
    lines = TABLES[args.of](json.loads(path.read_text(encoding='utf-8')))
  except (OSError, ValueError, KeyError, TypeError) as error:
    sys.exit(f'{path} is no record of {args.of} on a chip ({error!r}): make '
             'one with python -m tools onchip.')
  print('\n'.join(lines))
