"""What is said of tasks, against the committed records."""

from lra import tasks
from lra.report import leaderboard, result, texts


def test_they_are_of_tasks():
  assert set(texts.NOTES) <= set(tasks.TASKS)


def test_numbers_of_listops_are_those_of_its_test_split():
  path = next((leaderboard.RESULTS / 'runs/listops').glob('lightning-*'))
  parts = result.read(path).test.parts['decided at depth']
  counts = {int(depth): part.examples for depth, part in parts.items()}
  text = texts.NOTES['listops']
  assert sum(counts.values()) == 2000
  assert f'{counts[1]} at depth 1' in text
  for depth in (2, 3, 4):
    assert f'{counts[depth]} at {depth}' in text
  assert f'{sum(n for d, n in counts.items() if d > 4)} deeper' in text


def test_rows_near_the_floor_of_listops_read_what_is_said():
  seen = 0
  for path in (leaderboard.RESULTS / 'runs/listops').glob('*.json'):
    test = result.read(path).test
    if abs(test.accuracy - 0.353) < 0.02:
      seen += 1
      parts = test.parts['decided at depth']
      right = {int(depth): part.accuracy for depth, part in parts.items()}
      assert right[1] > 0.9, path.name  # nearly all
      assert 0.28 < right[2] < 0.38, path.name  # a third
      assert max(right[d] for d in right if d > 2) < 0.25, path.name
  assert seen
