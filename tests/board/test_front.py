"""Tests the names of the marks that no other mark beats."""

import itertools

import numpy as np
import pytest
from matplotlib import figure

from lra.board import front
from lra.core.style import style


@pytest.mark.parametrize('small', [False, True])
def test_the_front_has_each_point_that_no_other_beats(small):
  draw = np.random.default_rng(0)
  side = -1 if small else 1
  for points in draw.integers(0, 6, (50, 8, 2)).tolist():
    beaten = [any((side * x >= side * a and y >= b and (x, y) != (a, b))
                  or ((x, y) == (a, b) and j < i)
                  for j, (x, y) in enumerate(points))
              for i, (a, b) in enumerate(points)]
    found = front.of(points, small)
    assert sorted(found) == [i for i in range(8) if not beaten[i]]
    assert [points[i][0] for i in found] == sorted(points[i][0] for i in found)


def _boxes(points, small):
  """Returns the boxes of names, and of lines to them, and all marks."""
  with style():
    fig = figure.Figure(figsize=(5.6, 5), layout='constrained')
    ax = fig.subplots()
    ax.scatter(*zip(*points, strict=True), 100)
    ax.margins(0.1)
    names = [f'mechanism_{i}' for i in range(len(points))]
    texts = front.name(ax, points, names, [5] * len(points), small)
    fig.draw_without_rendering()
  lines = [child.arrow_patch.get_window_extent() for child in ax.texts
           if child.arrow_patch]
  return [text.get_window_extent() for text in texts], lines, (
      ax.transData.transform(points)), fig.bbox


@pytest.mark.parametrize('small', [False, True])
@pytest.mark.parametrize('crowd', [1, 0.02])
def test_names_hide_no_name_no_line_and_no_mark(small, crowd):
  """With a small `crowd` the front's marks are nearly at one height."""
  side = -1 if small else 1
  steps = np.linspace(0, 1, 6)
  points = [(side * x, 1 - crowd * x) for x in steps] + [(0, 0), (side, 0)]
  boxes, lines, centres, whole = _boxes(points, small)
  assert len(boxes) == 6 and bool(lines) == (crowd < 1)
  for a, b in itertools.combinations(boxes, 2):
    assert not a.overlaps(b)
  for box in boxes:
    assert not any(box.contains(x, y) for x, y in centres)
    assert whole.contains(box.x0, box.y0) and whole.contains(box.x1, box.y1)
  for line in lines:
    assert sum(box.x0 < line.x0 < box.x1 and line.y0 < box.y1 - 1
               and box.y0 + 1 < line.y1 for box in boxes) == 0


def test_the_reference_has_a_name_above_the_axes():
  with style():
    ax = figure.Figure(layout='constrained').subplots()
    ax.set(xlim=(0, 2), ylim=(0, 2))
    front.cross(ax, 1, 0.5, 'transformer')
    ax.figure.draw_without_rendering()
  box = ax.texts[0].get_window_extent()
  assert box.y0 >= ax.get_window_extent().y1 - 1
  assert {tuple(line.get_xdata()) for line in ax.lines} == {(1, 1), (0, 1)}
