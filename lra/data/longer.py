"""Generates tests of lengths that training has not seen."""

import dataclasses
import re

import data_prep
from data_prep.content import Split
from lra.errors import UserError

LONGEST = 2**20  # tokens of the longest sequence to generate


@dataclasses.dataclass(frozen=True)
class Lengths:
  """The lengths of a test: uniform from `shortest` to `longest` tokens."""
  shortest: int
  longest: int

  def __str__(self) -> str:
    one = self.shortest == self.longest
    return str(self.longest) if one else f'{self.shortest}-{self.longest}'


def parse(text: str) -> Lengths:
  """Returns the lengths that `64` or `40-256` means.

  Raises:
    UserError: the text is neither, or the lengths are not possible.
  """
  found = re.fullmatch(r'\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*', text)
  if not found:
    raise UserError(f'{text!r} is not a length: give a number such as 64, or a '
                    'range such as 40-256.')
  shortest, longest = int(found[1]), int(found[2] or found[1])
  if not 0 < shortest <= longest <= LONGEST:
    raise UserError(f'The length {text} is not possible: give 1 to {LONGEST}, '
                    'and the shorter length of a range first.')
  return Lengths(shortest, longest)


def split(task_name: str, lengths: Lengths) -> Split:
  """Generates test sequences of these lengths, the same ones each time.

  Raises:
    UserError: the task's sequences are not generated, or cannot be so long.
  """
  return data_prep.generate_longer(
      task_name, lengths.longest, lengths.shortest)
