"""Tests that tables sort their rows by the values that the cells show."""

import itertools
import re

import pytest

from lra.board import site, summary
from lra.board import tables as tables_lib
from lra.board.site import Place
from lra.core import paths
from lra.core.formats import NONE


@pytest.fixture(scope='module')
def tables():
  """Returns all tables of the committed leaderboard."""
  found = site.load(Place(paths.PACKAGED, paths.page()))
  tables = [summary.side_by_side(found.boards),
            *tables_lib.published(found.papers).values(), *(
      made.table for group in ('full', 'mini', 'probe')
      for made in summary.by_protocol(found.boards, group))]
  for board in found.boards:
    tables += [tables_lib.baselines(board), tables_lib.details(board),
               summary.breakdown(board)]
    for scores in tables_lib.scores(board, found.papers):
      tables += [scores.table, scores.compared]
  return [table for table in tables if table]


def first_number(text):
  """Returns the least and largest value that round to a text's first number.

  It returns None if the text has no number.
  """
  found = re.search(r'[+-]?[\d,]+(\.(\d+))?', text)
  if not found:
    return None
  number = float(found[0].replace(',', ''))
  half = 0.5001 * 10 ** -len(found[2] or '')
  return number - half, number + half


def test_numbers_are_sorted_as_they_are_written(tables):
  seen = set()
  for table in tables:
    for column in table.columns:
      if column.number:
        values = [(column.value(item), first_number(column.text(item)))
                  for item in table.items]
        for value, written in values:
          assert (value is None) == (written is None), column.name
        known = sorted(pair for pair in values if pair[0] is not None)
        written = [number for _, number in known]
        # In the order of the values, shown numbers rise except for rounding.
        least = itertools.accumulate((low for low, _ in written), max)
        assert all(low <= high for low, (_, high) in zip(
            least, written, strict=True)), column.name
        seen |= {column.name} if len(set(written)) > 1 else set()
  assert {'accuracy %', '95% interval', 'above baseline', 'parameters',
          'train s',
          'peak GiB', 'best step', 'test loss', 'ListOps mini',
          'mean of 6'} <= seen


def test_texts_are_sorted_by_themselves(tables):
  for table in tables:
    for column in table.columns:
      if not column.number:
        assert all(column.value(item) == column.text(item)
                   or column.text(item) in ('', NONE)
                   for item in table.items), column.name
