"""Prints the races in the GPU kernels, and fails if there is one.

It needs the wheels of the extra `aot-cuda`. It restarts itself in a new
process.
"""

import json
import sys

from kernels.tools import h200
from kernels.tools.ptx import compiled

SHOWN = 3  # races printed per kernel
HEADER = ('| op | pass | Dh | mask | packed | L | kernel | warpgroups | '
          'instructions that store to shared memory | bytes shared by two '
          'warpgroups | races |')


def main():
  ops, widths, rows_only = h200.arguments(__doc__)
  if rows_only:
    for op in ops:
      for width in widths:
        for row in compiled.rows(op, width):
          print(json.dumps(row), flush=True)
    return
  reason = h200.missing()
  if reason:
    sys.exit(reason)
  found = compiled.reports(ops, widths)
  print(HEADER)
  print('|' + '---|' * 11)
  for row in found:
    print(f'| {row["op"]} | {row["pass"]} | {row["width"]} | '
          f'{_yes(row["masked"])} | {_yes(row["packed"])} | {row["length"]} | '
          f'{row["kernel"]} | {row["warpgroups"]} | {row["stores"]} | '
          f'{row["shared_bytes"]} | {len(row["races"])} |')
  for row in found:
    for race in row['races'][:SHOWN]:
      print(f'{row["kernel"]}, Dh {row["width"]}, L {row["length"]}: {race}')
  sys.exit(1 if any(row['races'] for row in found) else 0)


def _yes(flag):
  return 'yes' if flag else 'no'


if __name__ == '__main__':
  main()
