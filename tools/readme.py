"""Replaces a table in the README of the kernels.

  python -m tools.errors | python -m tools.readme errors

Other sections are `h200`; `bytes` from `tools.benchmark --bytes`;
an
and
`chip` from `tools.recorded kernels/results/h200.json`, with
`times` and `layers` from its `--of=times` and `--of=layers`.
"""

import argparse
import pathlib
import re
import sys

README = pathlib.Path(__file__).parents[1] / 'README.md'


def put(text, section, table):
  """Returns `text` with `table` between the marks of `section`.

  Raises:
    ValueError: there is no such section, or no table.
  """
  marks = [f'<!-- {section}:{end} -->' for end in ('begin', 'end')]
  pattern = f'{marks[0]}.*?{marks[1]}'
  if len(re.findall(pattern, text, re.DOTALL)) != 1:
    raise ValueError(f'README.md has no section {section!r}')
  if '|---' not in table:
    raise ValueError('there is no table on standard input')
  whole = f'{marks[0]}\n{table.strip()}\n{marks[1]}'
  return re.sub(pattern, lambda _: whole, text, flags=re.DOTALL)


def main():
  parser = argparse.ArgumentParser(
      prog='python -m tools.readme', description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('section', help='between whose marks the table goes')
  section = parser.parse_args().section
  try:
    text = README.read_text(encoding='utf-8')
    README.write_text(put(text, section, sys.stdin.read()), encoding='utf-8')
  except ValueError as error:
    sys.exit(f'Nothing written: {error}.')


if __name__ == '__main__':
  main()
