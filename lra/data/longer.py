"""Generates further tests, of lengths that training may not have seen."""

import importlib
import re

from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep.content import Split

LONGEST = 2**20  # tokens of the longest sequence to generate


def split(task_name: str, name: str) -> Split:
  """Generates the sequences of a further test, the same ones each time.

  Args:
    task_name: name of a task.
    name: number of tokens, such as '64'; a range, such as '40-256', from which
      lengths are drawn uniformly; or one of the task's own tests, such as
      '512/128' for 512 tokens and 128 pairs.
  """
  task = tasks.get(task_name)
  module = importlib.import_module(
      f'lra.data_prep.{"probes" if task.probe else "listops"}')
  variant = module.VARIANTS.get(task.variant)
  if task.probe and name in variant.tests:
    return module.generate_test(variant, name)
  found = re.fullmatch(r'([0-9]{1,9})(?:-([0-9]{1,9}))?', name)
  if not found:
    raise UserError(f'{name!r} is not a length: give a number such as 64, or a '
                    'range such as 40-256.')
  shortest, longest = int(found[1]), int(found[2] or found[1])
  if not 0 < shortest <= longest <= LONGEST:
    raise UserError(f'The length {name} is not possible: give 1 to {LONGEST}, '
                    'and the shorter length of a range first.')
  if not task.probe and task.dataset != 'listops':
    raise UserError(
        f'{task_name} has no tests of other lengths: only probes and ListOps '
        'are generated at any length.')
  return module.generate_longer(variant, longest, shortest)
