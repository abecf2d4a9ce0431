"""Tests that figures show the values of the rows."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib import colors

from lra.board import charts, frame
from lra.board.inputs import Speeds
from lra.board.tables import lines
from lra.core import style
from tests.helpers.page import FLOORS, RUNS, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
THREE = [make(model, right=right) for model, right in (
    ('transformer', 130), ('simpletron', 140), ('local', 120))]
SPEEDS = Speeds('4 x 4,000 tokens on <script>$\\frac{',
                {'transformer': 1.0, 'simpletron': 4.0, 'local': 2.0},
                {'transformer': 2**32, 'simpletron': 2**30, 'local': 2**31})
FIGURES = ['text_mini_accuracy.svg', 'text_mini_speed.svg']


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


def names(board, speeds):
  return [figure.name for figure in charts.of_task(board, speeds)]


def texts(ticks):
  return [tick.get_text() for tick in ticks]


def marks(ax, y):
  """Returns the places of the marks of a line, and the ends of its lines."""
  found = [(line, *map(list, line.get_data())) for line in ax.lines]
  return ([x[0] for line, x, ys in found if ys == [y]],
          [x for line, x, ys in found if ys == [y, y]])


def test_intervals_means_seeds_and_baselines_are_drawn(board, drawn):
  found = board(RUNS)
  ax = drawn('accuracy.svg', charts.of_task(found, None))
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


def test_areas_are_memory_and_places_speed_and_accuracy(board, drawn):
  better = make('simpletron', right=150, steps=100)  # was not timed
  ax = drawn('speed.svg', charts.of_task(board([*THREE, better]), SPEEDS))
  clouds = ax.collections[0]
  assert [tuple(xy) for xy in clouds.get_offsets()] == [
      (4, 70), (1, 65), (2, 60)]
  areas = clouds.get_sizes() - 4
  assert areas[1] / areas[0] == pytest.approx(4)
  assert areas[1] / areas[2] == pytest.approx(2)
  assert sorted(texts(ax.texts)) == [
      'simpletron (train.steps=2000)', 'transformer']
  legend, = ax.figure.legends
  named = {colors.to_hex(handle.get_color()): handle.get_alpha()
           for handle in legend.legend_handles if hasattr(handle, 'get_color')}
  assert named == {colors.to_hex(mark): mark[3]
                   for mark in clouds.get_facecolors()}


def test_a_state_is_better_if_it_is_smaller(board, drawn):
  runs = [make(model, task='parity', right=right, state_size=size)
          for model, right, size in (('transformer', 150, 512),
                                     ('simpletron', 160, 64), ('local', 90, 8),
                                     ('performer', 80, 128))]
  ax = drawn('states.svg', charts.of_task(board(runs, 'parity'), None))
  assert sorted(map(tuple, ax.collections[0].get_offsets())) == [
      (8, 45), (64, 80), (128, 40), (512, 75)]
  assert sorted(texts(ax.texts)) == ['local', 'simpletron', 'transformer']


def test_of_many_rows_the_best_are_drawn_and_the_others_counted(board, drawn):
  found = board([make(f'model{right}', right=right)
                 for right in range(50, 150)])
  ax = drawn('accuracy.svg', charts.of_task(found, None))
  assert texts(ax.get_yticklabels())[1:] == [
      f'model{n}' for n in range(149, 69, -1)]
  title = ' '.join(ax.figure.get_suptitle().split())
  assert title.endswith('; 80 of 100 rows')


@pytest.mark.parametrize(('third', 'speeds', 'wanted'), [
    (THREE[2], SPEEDS, FIGURES), (THREE[2], None, FIGURES[:1]),
    (make('longformer'), SPEEDS, FIGURES[:1]),
    ({**THREE[2], 'changes': {'train.steps': 9}}, SPEEDS, FIGURES[:1])])
def test_three_rows_that_were_timed_are_compared(board, third, speeds, wanted):
  assert names(board([*THREE[:2], third]), speeds) == wanted


def test_all_full_tasks_are_in_one_figure(board, drawn):
  other = {**in_task(THREE[0], 'text'), 'protocol': 'lra'}
  other['config'] = {**other['config'], 'protocol': 'lra'}
  found = board([other, *(in_task(run, 'text') for run in THREE[1:])], 'text')
  ax = drawn('full_tasks.svg', charts.overview([found]))
  assert texts(ax.get_yticklabels()) == ['Text, lra', 'Text, simpletron']
  assert [sorted(marks(ax, y)[0]) for y in (0, 1)] == [[65], [60, 70]]
  assert texts(ax.texts) == ['transformer', 'simpletron']
  assert [bar.get_segments()[0][0][0] for bar in ax.collections] == [68, 68]


def test_figures_are_svg_without_dates(board):
  for figure in charts.of_task(board(THREE), SPEEDS):
    data = figure.draw()
    assert ET.fromstring(data).tag.endswith('svg')
    assert b'date' not in data.lower() and data == figure.draw()
