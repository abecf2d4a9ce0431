"""Fixed formats of numbers on the page, independent of the locale."""

NONE = '–'


def percent(fraction: float | None) -> str:
  return NONE if fraction is None else f'{100 * fraction:.2f}'


def points(difference: float | None) -> str:
  """A signed difference of fractions in percentage points."""
  return NONE if difference is None else f'{100 * difference:+.2f}'


def ratio(number: float | None) -> str:
  return NONE if number is None else f'{number:.2f}'


def count(number: int | None) -> str:
  return NONE if number is None else f'{number:,}'


def gib(num_bytes: float | None) -> str:
  return NONE if num_bytes is None else f'{num_bytes / 2**30:.2f}'


def quantity(number: float | None) -> str:
  """About three digits, without an exponent."""
  if number is None:
    return NONE
  for limit, digits in ((100, 0), (10, 1), (1, 2)):
    if number >= limit:
      return f'{number:,.{digits}f}'
  return f'{number:.3f}'
