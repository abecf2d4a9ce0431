"""Prints errors of every kernel against float64, gradients included.

  python -m tools errors

fails if a relative RMS error exceeds its bound. Kernels whose device is absent
run in an interpreter.
"""

import argparse
import sys

import jax

from lra.kernels import dispatch
from tests.helpers import errors
from tests.helpers.errors import Case


def table(cases, names=None):
  """Returns markdown lines of the errors, and whether all are in bounds.

  `names` are those of kernels; None means all.
  """
  columns = ('out', 'state', *errors.GRADIENTS, 'masked')
  lines = ['| op | Dh | dtype | form | kernel | ' + ' | '.join(columns)
           + ' | bound |',
           '|' + '---|' * (len(columns) + 6)]
  good = True
  for op in errors.EVERY:
    for case in cases:
      for kernel in dispatch.OPS[op]:
        if names and kernel not in names:
          continue
        if not _has_form(op, kernel, case.form):
          continue
        cells = op, str(case.width), case.dtype, case.form, kernel
        start = '| ' + ' | '.join(cells) + ' | '
        try:
          with errors.simulated(kernel):
            found = errors.measure(op, kernel, case)
        except NotImplementedError as reason:
          lines.append(start + f'not run: {reason} |')
          continue
        good &= errors.within(found, case.dtype)
        cells = (f'{found[n]:.1e}' if n in found else '' for n in columns)
        limits = ' / '.join(f'{errors.bound(name, case.dtype):.0e}'
                            for name in ('out', 'dq'))
        lines.append(start + ' | '.join(cells) + f' | {limits} |')
  return lines, good


def _has_form(op, kernel, form):
  """Returns whether a form applies to a kernel and repeats no other form."""
  if form == 'plain':
    return True
  if op == 'softmax' or (op, form) == ('lightning', 'state'):
    return False
  if form.endswith('+silu') and op != 'lightning':
    return False
  return not form.startswith('segments') or kernel == dispatch.OPS[op][0]


def main(argv):
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--length', type=int, default=Case.length)
  parser.add_argument('--heads', type=int, default=Case.heads)
  parser.add_argument('--widths', default=str(Case.width), help='by commas')
  parser.add_argument('--forms', help='by commas',
                      default=','.join(errors.FORMS))
  parser.add_argument('--kernels', help='names, by commas; all by default')
  args = parser.parse_args(argv)
  shape = {n: getattr(args, n) for n in ('length', 'heads')}
  cases = [Case(width=int(width), dtype=dtype, form=form, **shape)
           for width in args.widths.split(',') for form in args.forms.split(',')
           for dtype in ('float32', 'bfloat16')]
  lines, good = table(cases, args.kernels and args.kernels.split(','))
  print(f'Relative RMS errors against float64, {shape}, device '
        f'{jax.default_backend()}',
        end='\n\n')
  print('\n'.join(lines))
  sys.exit(0 if good else 1)
