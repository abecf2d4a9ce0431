"""What a result says of speed."""

import pytest

from lra.training import outcome
from lra.training.progress import Progress
from tests.helpers import small


@pytest.mark.parametrize('task, tokens', [
    ('listops', 4 * 24), ('retrieval', 4 * 2 * 24)])
def test_rates_closed_form(task, tokens):
  """Ten steps in five seconds; both documents of a pair are read."""
  p = small.make(small.config('simpletron', task))
  got = outcome.outcome(
      p, 'ok', 10, Progress(timed_steps=10, train_seconds=5.0))
  assert got['steps_per_s'] == pytest.approx(2)
  assert got['tokens_per_s'] == pytest.approx(2 * tokens)
