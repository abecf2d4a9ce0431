"""Compares parameters with the Transformer's: the arena allows 10% more.

If it has no row, its number comes from the file that `python -m
lra.costs.parameters` writes, so that a page needs no model.
"""

import csv
import io
import pathlib
from collections.abc import Sequence

from lra.report.catalogue import REFERENCE
from lra.report.row import Row

NAME = 'budgets.csv'
COLUMNS = ('protocol', 'task', 'transformer')
_SIZES = ('num_layers', 'width', 'mlp_width')
COUNTED = pathlib.Path(__file__).resolve().parents[1] / 'results' / NAME


def read(path: pathlib.Path = COUNTED) -> dict[tuple[str, str], int]:
  """Reads (protocol, task) -> trainable parameters; {} without a valid file."""
  try:
    rows = csv.DictReader(io.StringIO(path.read_text(encoding='utf-8')))
    return {(row['protocol'], row['task']): int(row['transformer'])
            for row in rows}
  except (OSError, ValueError, KeyError, TypeError):
    return {}


def compare(rows: Sequence[Row], counted: int | None) -> None:
  """Compares the rows of a protocol with the Transformer.

  Args:
    rows: rows of one task and protocol.
    counted: the Transformer's parameters, used if it has no row; None if
      unknown.
  """
  reference = _reference(
      [r for r in rows if not r.changes] or rows) or counted
  for row in rows:
    if reference and row.params:
      row.ratio = row.params / reference
      row.heavy = 10 * row.params > 11 * reference


def _reference(rows):
  """Returns parameters of the Transformer with the commonest encoder size.

  A protocol may have been tried with several encoder sizes; the usual one
  sets the budget. Ties: more finished seeds, then fewer parameters.
  """
  def sizes(row):
    return [row.setting('encoder', name) for name in _SIZES]
  candidates = [r for r in rows if r.model == REFERENCE and r.params]
  if not candidates:
    return None
  usual = max(candidates, key=lambda c: (
      sum(sizes(r) == sizes(c) for r in rows), len(c.finished), -c.params))
  return usual.params
