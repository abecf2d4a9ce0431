"""Tests that figures show the values of the rows."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib import colors

from lra.board import charts, frame
from lra.board.tables import lines
from lra.core import style
from tests.helpers.page import FLOORS, RUNS, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
THREE = [make(model, right=right) for model, right in (
    ('transformer', 130), ('simpletron', 140), ('local', 120))]


@pytest.fixture
def board(tmp_path):
  def make_board(runs, task='text_mini'):
    place = Place(tmp_path, runs, ({**FLOORS, 'task': task},))
    boards, left_out = frame.load(place.runs, place.baselines)
    assert not left_out
    return boards[0]
  return make_board


@pytest.fixture
def drawn(monkeypatch):
  """Returns a function that draws a figure and returns its axes, not bytes."""
  monkeypatch.setattr(style, 'saved', lambda fig, form: fig.axes[0])
  def draw(name, found):
    figure, = (figure for figure in found if figure.name.endswith(name))
    return figure.draw()
  return draw


def in_task(run, task):
  return {**run, 'task': task, 'config': {**run['config'], 'task': task}}


def texts(ticks):
  return [tick.get_text() for tick in ticks]


def marks(ax, y):
  """Returns the places of the marks of a line, and the ends of its lines."""
  found = [(line, *map(list, line.get_data())) for line in ax.lines]
  return ([x[0] for line, x, ys in found if ys == [y]],
          [x for line, x, ys in found if ys == [y, y]])


def test_intervals_means_seeds_and_baselines_are_drawn(board, drawn):
  found = board(RUNS)
  ax = drawn('accuracy.svg', charts.of_task(found))
  assert texts(ax.get_yticklabels()) == [
      'simpletron:', 'simpletron', 'transformer (train.steps=2000)',
      'transformer (train.steps=100)']
  for y, row in enumerate(lines(found.finished), 1):
    middle, ends = marks(ax, y)
    assert middle == [100 * row.accuracy]
    seeds = [[65.0, 65.5]] if row.seeds > 1 else []
    assert ends == [[100 * row.low, 100 * row.high], *seeds]
  families = {colors.to_hex(line.get_color()) for line in ax.lines
              if line.get_label() in ('linear', 'dense')}
  assert len(families) == 2
  assert [line.get_xdata()[0] for line in ax.lines
          if line.get_label().startswith('baseline: ')] == [50, 68]


def test_a_cost_is_better_if_it_is_smaller(board, drawn):
  runs = [make(model, right=right) for model, right in (
      ('transformer', 150), ('simpletron', 160), ('local', 90),
      ('performer', 80))]
  cost = {'transformer': 512, 'simpletron': 64, 'local': 8, 'performer': 128}
  ax = charts.cloud('', [(cost[row.model], row) for row in lines(
      board(runs).rows)], 'cost')
  assert sorted(map(tuple, ax.collections[0].get_offsets())) == [
      (8, 45), (64, 80), (128, 40), (512, 75)]
  assert sorted(texts(ax.texts)) == ['local', 'simpletron', 'transformer']


def test_of_many_rows_the_best_are_drawn_and_the_others_counted(board, drawn):
  found = board([make(f'model{right}', right=right)
                 for right in range(50, 150)])
  ax = drawn('accuracy.svg', charts.of_task(found))
  assert texts(ax.get_yticklabels())[1:] == [
      f'model{n}' for n in range(149, 69, -1)]
  title = ' '.join(ax.figure.get_suptitle().split())
  assert title.endswith('; 80 of 100 rows')


def test_figures_are_svg_without_dates(board):
  for figure in charts.of_task(board(THREE)):
    data = figure.draw()
    assert ET.fromstring(data).tag.endswith('svg')
    assert b'date' not in data.lower() and data == figure.draw()
