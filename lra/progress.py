"""Progress on the terminal: a bar with loss, accuracy, speed and ETA."""

import sys

import tqdm


def say(message: str) -> None:
  """One line that does not tear the bar."""
  tqdm.tqdm.write(message, file=sys.stderr)


def bar(*, total: int, done: int = 0, what: str, unit: str = 'step'):
  """A bar on stderr; without a terminal, a line every half minute."""
  quiet = not sys.stderr.isatty()
  return tqdm.tqdm(
      total=total, initial=done, desc=what, unit=unit, file=sys.stderr,
      leave=unit == 'step', mininterval=30 if quiet else 0.2,
      delay=30 if quiet and unit != 'step' else 0, dynamic_ncols=not quiet)
