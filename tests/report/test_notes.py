"""What is said of tasks, against the committed records."""

from lra import tasks
from lra.report import content, leaderboard, result


def test_they_are_of_tasks():
  assert set(content.NOTES) <= set(tasks.TASKS)


def test_numbers_of_listops_are_those_of_its_test_split():
  path = next((leaderboard.RESULTS / 'runs/listops').glob('lightning-*'))
  parts = result.read(path).test.parts['decided at depth']
  counts = {int(depth): part.examples for depth, part in parts.items()}
  text = content.NOTES['listops']
  assert sum(counts.values()) == 2000
  assert f'{counts[1]} at depth 1' in text
  for depth in (2, 3, 4):
    assert f'{counts[depth]} at {depth}' in text
  assert f'{sum(n for d, n in counts.items() if d > 4)} deeper' in text
