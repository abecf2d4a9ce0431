"""Several seeds of one config, as `0`, `0,3` or `0-4`."""

import re
from collections.abc import Iterable

from lra.core.errors import UserError
from lra.schema import grid
from lra.schema.fields import COUNT

MOST = 1000  # most seeds of a command
_LONGEST = 60  # most characters of seeds in a message


def parse(text: str) -> list[int]:
  """Returns the seeds of `0`, `0,3` or `0-4`, in this order."""
  seeds = []
  for part in text.split(','):
    found = re.fullmatch(r'(\d{1,20})(?:-(\d{1,20}))?', part)
    first = last = int(found[1]) if found else COUNT + 1
    if found and found[2]:
      last = int(found[2])
    if not first <= last <= COUNT or last - first >= MOST:
      raise UserError(
          f'seeds={_short(text)} is not possible: write 0, or 0,3, or 0-4, '
          f'numbers up to {COUNT}, at most {MOST} of them.')
    grid.check_count(len(seeds) + last + 1 - first, f'seeds={_short(text)}')
    seeds += range(first, last + 1)
  if len(set(seeds)) < len(seeds):
    raise UserError(f'seeds={_short(text)} names a seed twice: name each once.')
  return seeds


def _short(text):
  return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'


def text(seeds: Iterable[int]) -> str:
  """Writes rising seeds in the form of `parse`, with ranges where possible."""
  runs = []
  for seed in seeds:
    if runs and seed == runs[-1][1] + 1 and seed - runs[-1][0] < MOST:
      runs[-1][1] = seed
    else:
      runs.append([seed, seed])
  return ','.join(f'{a}-{b}' if a < b else f'{a}' for a, b in runs)
