"""Tests that figures show the values of the rows."""

import dataclasses
import json
import re
import xml.etree.ElementTree as ET

import pytest
from matplotlib import colors

from lra.board import boards as boards_lib
from lra.board import charts, figures
from lra.board.inputs import Speeds
from lra.core import style, tasks
from tests.helpers.page import FLOORS, RUNS, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
THREE = [make(model, right=right) for model, right in (
    ('transformer', 130), ('simpletron', 140), ('local', 120))]
SPEEDS = Speeds('4 x 4,000 tokens on CPU',
                {'transformer': 1.0, 'simpletron': 4.0, 'local': 2.0},
                {'transformer': 2**32, 'simpletron': 2**30, 'local': 2**31})


@pytest.fixture
def board(tmp_path):
  def make_board(runs, task='text_mini'):
    place = Place(tmp_path, runs, ({**FLOORS, 'task': task},))
    boards, left_out = boards_lib.load(place.runs, place.baselines)
    assert not left_out
    return boards[0]
  return make_board


@pytest.fixture
def drawn(monkeypatch):
  """Returns a function that draws a figure and returns its axes, not bytes."""
  monkeypatch.setattr(charts, 'saved', lambda fig, form: fig.axes[0])
  monkeypatch.setattr(figures, 'sealed', lambda axes, figure: axes)
  def draw(kind, *arguments):
    plan = {'overview': figures.overview}.get(kind, figures.task_figures)
    found, = (figure for figure in plan(*arguments) if figure.chart == kind)
    return figures._drawn(found)
  return draw


def names(board, speeds):
  return [figure.name for figure in figures.task_figures(board, speeds)]


def colour(artist):
  return colors.to_hex(artist.get_color()).upper()


def test_intervals_means_seeds_and_baselines_are_drawn(board, drawn):
  found = board(RUNS)
  ax = drawn('accuracy', found, None)
  names = [tick.get_text() for tick in ax.get_yticklabels()]
  assert names == [
      'simpletron:', 'simpletron', 'transformer (train.steps=2000)',
      'transformer (train.steps=100)']
  lines = [(line, *map(list, line.get_data())) for line in ax.lines]
  for y, row in enumerate(found.finished, 1):
    bar, = [x for _, x, ys in lines if ys == [y, y] and x not in (
        [100 * a for a in row.accuracies],)]
    assert bar == [100 * row.interval.low, 100 * row.interval.high]
    mean, = [line for line, x, ys in lines
             if (x, ys) == ([100 * row.mean], [y])]
    family = {'simpletron': 'linear', 'transformer': 'dense'}[row.model]
    assert colour(mean) == charts.colour(family)
  assert [x for _, x, ys in lines if ys == [2, 2]][-1] == [65.0, 65.5]
  floors = [line.get_xdata()[0] for line in ax.lines
            if colour(line) == style.BASELINE and len(line.get_xdata()) == 2]
  assert floors == [50, 68]


def test_families_have_colours_of_their_own():
  known = [charts.colour(name) for name in (*charts.FAMILIES, 'unheard of')]
  assert len(set(known)) == len(known)


def test_areas_are_memory_and_places_speed_and_accuracy(board, drawn):
  ax = drawn('speed', board(THREE), SPEEDS)
  marks = ax.collections[0]
  assert [tuple(xy) for xy in marks.get_offsets()] == [
      (4, 70), (1, 65), (2, 60)]
  areas = marks.get_sizes()
  assert areas[1] / areas[0] == pytest.approx(4)
  assert areas[1] / areas[2] == pytest.approx(2)


def test_marks_have_the_colours_of_the_legend(board, drawn):
  """Each mark has the colour and the opacity of its legend entry."""
  ax = drawn('speed', board(THREE), SPEEDS)
  legend, = ax.figure.legends
  named = {colors.to_hex(handle.get_color()): handle.get_alpha()
           for handle in legend.legend_handles if hasattr(handle, 'get_color')}
  marks = ax.collections[0].get_facecolors()
  assert {colors.to_hex(mark): mark[3] for mark in marks} == named


def test_a_model_has_one_mark_whatever_its_configurations(board, drawn):
  """Models were timed in one configuration, so one row of each is drawn."""
  better = make('simpletron', right=150, steps=100)
  ax = drawn('speed', board([*THREE, better]), SPEEDS)
  assert [tuple(xy) for xy in ax.collections[0].get_offsets()] == [
      (4, 70), (1, 65), (2, 60)]
  names = [text.get_text() for text in ax.texts]
  assert sorted(filter(None, names)) == ['simpletron', 'transformer']


def test_a_model_of_another_speed_is_named_in_the_corner(board, drawn):
  """The axis has the other marks only; `slow` would take half of it."""
  more = {f'model{n}': 1 + n / 10 for n in range(9)} | {'slow': 0.05}
  found = board([*THREE, *(make(name, right=100 + n)
                           for n, name in enumerate(more))])
  ax = drawn('speed', found, dataclasses.replace(
      SPEEDS, faster=SPEEDS.faster | more,
      memory=SPEEDS.memory | dict.fromkeys(more, 2**30)))
  assert len(ax.collections[0].get_offsets()) == 12
  assert 0.5 < ax.get_xlim()[0] and ax.get_xlim()[1] > 4
  assert '← slow: 0.05 steps, 54.5%' in [t.get_text() for t in ax.texts]


def _contrast(one, other):
  """Returns the contrast of two colours (WCAG 2.2, relative luminance)."""
  def luminance(text):
    rgb = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4
           for x in colors.to_rgb(text)]
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]

  low, high = sorted(map(luminance, (one, other)))
  return (high + 0.05) / (low + 0.05)


def test_letters_and_marks_are_seen_on_dark_pages(board, tmp_path):
  """Each colour, or its replacement, has a contrast of 3 to the background.

  Lines of the grid are paler.
  """
  for figure in figures.task_figures(board(THREE), SPEEDS):
    svg = figures.draw([figure], tmp_path)[figure.name].decode()
    rules = dict(re.findall(
        r'\[style\*="fill: (#\w+)"\] {fill: (#\w+) !important}', svg))
    background = rules['#ffffff']
    used = set(re.findall(r'style="[^"]*(?:fill|stroke): (#\w+)', svg))
    assert {'#ffffff', style.BASELINE, '#e6e6e6'} <= used
    unnamed = re.search(r'dark\) {svg {fill: (#\w+)}', svg)[1]
    for seen in {rules.get(c, c) for c in used - {'#ffffff', '#e6e6e6'}} | {
        unnamed}:
      assert _contrast(seen, background) > 3, seen


def test_of_many_rows_the_best_are_drawn_and_the_others_counted(board, drawn):
  found = board([make(f'model{right}', right=right)
                 for right in range(50, 150)])
  ones = {f'model{right}': 1 for right in range(50, 150)}
  lines = drawn('accuracy', found, None)
  points = drawn('speed', found, Speeds('', ones, ones))
  best = [f'model{n}' for n in range(149, 69, -1)]
  assert [t.get_text() for t in lines.get_yticklabels()][1:] == best
  assert sorted(points.collections[0].get_offsets()[:, 1]) == pytest.approx(
      [n / 2 for n in range(70, 150)])
  for ax in (lines, points):
    title = ' '.join(ax.figure.get_suptitle().split())
    assert title.endswith('; 80 of 100 rows')


def test_titles_are_in_the_middle_of_their_figure(board, drawn):
  """Titles are centred despite wide row names, even in several lines."""
  other = make('simpletron', right=150, steps=100)
  other['config']['encoder']['positions'] = 'x' * 40
  found = board([*THREE, other])
  for ax in (drawn('accuracy', found, None),
             drawn('speed', found, SPEEDS)):
    fig = ax.figure
    for text in (fig.get_suptitle(), 'a long title ' * 12):
      charts._title(fig, text)
      fig.draw_without_rendering()
      box = fig._suptitle.get_window_extent()
      assert 0 < box.x0 and box.x1 < fig.bbox.width
      assert (box.x0 + box.x1) / 2 == pytest.approx(fig.bbox.width / 2, abs=1)


def test_a_row_of_one_seed_looks_other_than_a_mean(board, drawn):
  ax = drawn('accuracy', board(RUNS), None)
  legend, = ax.figure.legends
  named = [text.get_text() for text in legend.get_texts()]
  assert named[2:5] == ['mean of several seeds', 'its seeds', 'one seed']
  like = {text: handle for text, handle in zip(
      named, legend.legend_handles, strict=True)}
  def looks(line):
    return (line.get_markersize(), colors.to_hex(
        line.get_markerfacecolor(), keep_alpha=True) if
        line.get_markerfacecolor() == 'white' else 'its own')
  marks = {tuple(line.get_xydata()[0].round(9)): looks(line)
           for line in ax.lines if len(line.get_xdata()) == 1}
  single, mean = looks(like['one seed']), looks(like['mean of several seeds'])
  assert single != mean
  assert marks == {(70, 1): single, (65.25, 2): mean, (55, 3): single}


def test_three_rows_whose_models_were_timed_are_compared(board):
  assert names(board(THREE), SPEEDS) == [
      'text_mini_accuracy.svg', 'text_mini_speed.svg']


@pytest.mark.parametrize(('third', 'speeds'), [
    (make('longformer'), SPEEDS), (THREE[2], None),
    ({**THREE[2], 'changes': {'train.steps': 9}}, SPEEDS),
    ({**THREE[2], 'changes': {'model.block_size': 9}}, SPEEDS)])
def test_what_was_not_timed_is_not_drawn(board, third, speeds):
  found = board([*THREE[:2], third])
  assert names(found, speeds) == ['text_mini_accuracy.svg']


def test_settings_that_were_not_timed_are_not_drawn(board):
  found = board([{**run, 'changes': {'model.block_size': 9}} for run in THREE])
  assert names(found, SPEEDS) == ['text_mini_accuracy.svg']


def test_all_full_tasks_are_in_one_figure(board, drawn):
  found = board([{**json.loads(json.dumps(run)), 'task': 'text', 'config': {
      **run['config'], 'task': 'text'}} for run in THREE], 'text')
  assert names(found, SPEEDS) == [
      'text_accuracy.svg', 'text_speed.svg']
  ax = drawn('overview', [found])
  floor = ax.lines[0]
  assert list(floor.get_xdata()) == [68, 68]
  means = {line.get_xdata()[0] for line in ax.lines
           if len(line.get_xdata()) == 1}
  assert means == {70, 65, 60}
  assert [text.get_text() for text in ax.texts] == [
      'simpletron\nnot better than the baseline']
  assert [tick.get_text() for tick in ax.get_yticklabels()] == [
      'Text\nsimpletron']
  best = found.rows[0].interval
  assert [100 * best.low, 100 * best.high] in [
      list(line.get_xdata()) for line in ax.lines]


def test_marks_of_one_line_do_not_hide_each_other(board, drawn):
  runs = [make(f'model{right}', task='text', right=right)
          for right in (150, 149, 149, 148, 120)]
  for name, run in zip('abcde', runs, strict=True):
    run['model'] = run['config']['model']['name'] = name
  ax = drawn('overview', [board(runs, 'text')])
  marks = [tuple(line.get_xydata()[0]) for line in ax.lines
           if len(line.get_xdata()) == 1]
  assert sorted(x for x, _ in marks) == [60, 74, 74.5, 74.5, 75]
  # The best mark and the mark without neighbours are not moved.
  assert (75, 0) in marks and (60, 0) in marks
  assert len({y for x, y in marks if x > 70}) == 4
  assert all(abs(y) < 0.5 for _, y in marks)


def test_the_baseline_is_on_top_of_the_marks(board, drawn):
  ax = drawn('overview', [board([make(task='text', right=136)], 'text')])
  baseline, *marks = ax.lines
  assert list(baseline.get_xdata()) == [68, 68]
  assert all(mark.get_zorder() < baseline.get_zorder() for mark in marks
             if len(mark.get_xdata()) == 1)


def test_a_full_task_without_a_run_says_so(board, drawn, tmp_path):
  found = board([make(task='text')], 'text')
  none = boards_lib.TaskBoard(
      tasks.get('image'), [boards_lib.Baseline('ridge', 0.3, 'how')], [])
  ax = drawn('overview', [found, none])
  assert [tick.get_text() for tick in ax.get_yticklabels()] == [
      'Text\nsimpletron']
  last = ax.get_xlabel().rpartition('no run yet: ')[2]
  assert 'Image' in last and 'Pathfinder' in last and 'Text' not in last


@pytest.mark.parametrize('right', [132, 140])
def test_the_best_name_keeps_clear_of_the_baseline(board, drawn, right):
  run = make('longformer', task='text', right=right)  # the baseline is 136
  ax = drawn('overview', [board([run], 'text')])
  ax.figure.draw_without_rendering()
  name, floor = ax.texts[0].get_window_extent(), ax.lines[0].get_xdata()[0]
  place = ax.transData.transform((floor, 0))[0]
  assert not name.x0 < place < name.x1


def test_protocols_are_lines_apart(board, drawn):
  other = {**THREE[0], 'protocol': 'lra'}
  found = board([{**json.loads(json.dumps(run)), 'task': 'text', 'config': {
      **run['config'], 'task': 'text', 'protocol': run['protocol']}}
      for run in (other, *THREE[1:])], 'text')
  ax = drawn('overview', [found])
  assert [tick.get_text() for tick in ax.get_yticklabels()] == [
      'Text\nlra', 'Text\nsimpletron']
  marks = {tuple(line.get_xydata()[0]) for line in ax.lines
           if len(line.get_xdata()) == 1}
  assert marks == {(65, 0), (70, 1), (60, 1)}


def test_only_full_tasks_with_rows_have_that_figure(board):
  assert figures.overview([board(THREE)]) == []


def test_figures_are_svg_without_dates(board, tmp_path):
  hostile = dataclasses.replace(SPEEDS, what='<script>$\\frac{')
  planned = figures.task_figures(board(THREE), hostile)
  for data in figures.draw(planned, tmp_path).values():
    root = ET.fromstring(data)
    assert root.tag.endswith('svg') and b'date' not in data.lower()
