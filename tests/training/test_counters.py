"""What a result says of speed."""

import pytest

from lra.training.counters import RunCounters
from tests.helpers import small


@pytest.mark.parametrize('task, tokens', [
    ('listops', 4 * 24), ('retrieval', 4 * 2 * 24)])
def test_rates_closed_form(task, tokens):
  """Ten steps in five seconds; both documents of a pair are read."""
  p = small.make(small.config('simpletron', task))
  got = RunCounters(timed_steps=10, train_seconds=5.0).result_fields(
      p, 'ok', 10)
  assert got['steps_per_s'] == pytest.approx(2)
  assert got['tokens_per_s'] == pytest.approx(2 * tokens)
