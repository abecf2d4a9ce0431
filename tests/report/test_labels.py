"""Tests that the names beside points in a figure do not overlap."""

import itertools

import numpy as np
import pytest
from matplotlib import figure
from matplotlib.backends import backend_agg

from lra.formats import plain
from lra.records.style import style
from lra.report import charts


def placed(points, names, area, margin=0.12):
  """Returns the names' boxes, the marks' circles and the axes' box, in pixels.
  """
  with style():
    fig = figure.Figure(figsize=(8, 5), layout='constrained')
    ax = fig.subplots()
    ax.scatter(*zip(*points, strict=True), area)
    ax.margins(margin)
    radius = (area / np.pi) ** 0.5
    texts = charts.place_names(ax, points, names, [radius] * len(points))
    renderer = backend_agg.FigureCanvasAgg(fig).get_renderer()
    fig.draw_without_rendering()
    pixels = radius * fig.dpi / 72
    marks = [(x, y, pixels) for x, y in ax.transData.transform(points)]
    boxes = [text.get_window_extent(renderer).extents for text in texts]
    return boxes, marks, ax.get_window_extent(renderer).extents


def overlap(a, b):
  """Returns the shorter side of the overlap of two boxes, in pixels."""
  return min(min(a[2], b[2]) - max(a[0], b[0]),
             min(a[3], b[3]) - max(a[1], b[1]))


def gap(box, mark):
  """Returns the distance of a box and a circle; negative if they overlap."""
  x, y, radius = mark
  return np.hypot(max(box[0] - x, 0, x - box[2]),
                  max(box[1] - y, 0, y - box[3])) - radius


def test_lines_lead_from_far_names_to_their_points():
  """A line joins a name to its point if the point is far.

  A line is also drawn if another point is about as near. So the point of a
  name without a line is its nearest.
  """
  draw = np.random.default_rng(0)
  points = 10 ** draw.normal(size=(40, 2))
  with style():
    fig = figure.Figure(figsize=(8, 5), layout='constrained')
    ax = fig.subplots()
    ax.scatter(*points.T, 100)
    ax.set_xscale('log')
    ax.set_yscale('log')
    texts = charts.place_names(ax, points, ['a_long_mechanism'] * 40, [6] * 40)
    renderer = backend_agg.FigureCanvasAgg(fig).get_renderer()
    fig.draw_without_rendering()
  boxes = [text.get_window_extent(renderer).extents for text in texts]
  lines = [child.arrow_patch for child in ax.texts if child.arrow_patch]
  ends = [line.get_path().vertices[[0, -1]] for line in lines]
  led = 0
  centres = ax.transData.transform(points)
  for i, (box, centre) in enumerate(zip(boxes, centres, strict=True)):
    mine = [name for name, point in ends if np.hypot(*(point - centre)) < 1
            and gap(box, (*name, 0)) < 1]
    own, *others = [gap(box, (*c, 0)) * 72 / fig.dpi for c in (
        centre, *np.delete(centres, i, axis=0))]
    wanted = own > 6 + 6 or min(others) < own + 2
    if abs(own - (6 + 6)) > 1 and abs(min(others) - own - 2) > 0.5:
      assert len(mine) == wanted  # else rounding decides
    led += len(mine)
  assert len(lines) == led > 5


def test_a_name_that_is_as_near_to_another_mark_has_a_line():
  """Two names at one point have lines; names of distant points have none."""
  def lines(points):
    with style():
      ax = figure.Figure(figsize=(8, 5)).subplots()
      ax.set(xlim=(0, 100), ylim=(0, 100))
      charts.place_names(ax, points, ['name'] * len(points), [6] * len(points))
      return sum(child.arrow_patch is not None for child in ax.texts)
  assert lines([(20, 20), (80, 80)]) == 0
  assert lines([(50, 50), (50, 50)]) == 2


def test_a_line_crosses_the_boxes_that_it_goes_through():
  start, end = np.array([[0., 0], [0, 0], [0, 5]]), np.array(
      [[10., 10], [0, 10], [10, 5]])
  boxes = np.array([[4., 4, 6, 6], [-1, 4, 1, 6], [20, 20, 30, 30],
                    [4, 8, 6, 9]])
  np.testing.assert_array_equal(charts._crosses(start, end, boxes), [
      [True, False, False, False], [False, True, False, False],
      [True, True, False, False]])


@pytest.mark.parametrize('seed', range(2))
def test_names_overlap_nothing(seed):
  draw = np.random.default_rng(seed)
  points = [tuple(p) for p in draw.normal(size=(25, 2))]
  names = [f'mechanism_{"x" * n}' for n in draw.integers(0, 9, 25)]
  boxes, marks, frame = placed(points, names, area=120)
  for a, b in itertools.combinations(boxes, 2):
    assert overlap(a, b) < 1
  for box in boxes:
    assert min(gap(box, mark) for mark in marks) > -1
    assert overlap(box, frame) >= min(
        box[2] - box[0], box[3] - box[1]) - 1


def test_names_at_the_edges_stay_inside():
  names = ['a long name at the edge'] * 4
  boxes, _, frame = placed(
      [(0, 0), (1, 1), (0, 1), (1, 0)], names, area=100, margin=0.02)
  for left, low, right, high in boxes:
    assert frame[0] - 1 < left < right < frame[2] + 1
    assert frame[1] - 1 < low < high < frame[3] + 1


def test_the_same_points_have_the_same_places():
  points, names = [(0, 0), (0.01, 0), (0, 0.01)], ['a', 'bb', 'ccc']
  a, b = (np.array(placed(points, names, 100)[0]) for _ in range(2))
  np.testing.assert_array_equal(a, b)


def test_one_name_is_beside_its_point():
  (box,), (mark,), _ = placed([(1, 1)], [plain('alone')], 100)
  assert 0 < gap(box, mark) < 10
