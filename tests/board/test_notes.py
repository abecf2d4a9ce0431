"""Tests the page's notes on tasks against the committed records."""

import json

from lra.board import texts
from lra.core import paths, tasks
from lra.schema import result


def test_they_are_of_tasks():
  assert set(texts.NOTES) <= set(tasks.TASKS)


def test_numbers_of_listops_are_those_of_its_test_split():
  path = next((paths.PACKAGED / 'runs/listops').glob('lightning-*'))
  parts = result.read(path).test.parts['decided at depth']
  counts = {int(depth): part.examples for depth, part in parts.items()}
  text = texts.NOTES['listops']
  assert sum(counts.values()) == 2000
  assert f'{counts[1]} at depth 1' in text
  for depth in (2, 3, 4):
    assert f'{counts[depth]} at {depth}' in text
  assert f'{sum(n for d, n in counts.items() if d > 4)} deeper' in text


def test_rows_near_the_baseline_of_listops_have_its_profile():
  floors = json.loads(
      (paths.PACKAGED / 'floors/listops.json').read_text())['floors']
  rule = floors['first operator']
  of_rule = [part['accuracy'] for _, part in sorted(
      rule['parts']['decided at depth'].items(), key=lambda x: int(x[0]))]
  text = texts.NOTES['listops']
  assert f'{100 * of_rule[0]:.1f}% of the first' in text
  assert f'{100 * of_rule[1]:.1f}% of the second' in text
  assert f'{100 * of_rule[2]:.1f}% and less of the others' in text
  assert max(of_rule[3:]) < of_rule[2]
  near = 0
  for path in (paths.PACKAGED / 'runs/listops').glob('*.json'):
    test = result.read(path).test
    if abs(test.accuracy - rule['accuracy']) < 0.02:
      near += 1
      parts = test.parts['decided at depth']
      for depth in (1, 2, 3):  # two standard errors are 2 to 5 points
        assert abs(parts[str(depth)].accuracy - of_rule[depth - 1]) < 0.06, (
            path.name, depth)
  assert near > 3
