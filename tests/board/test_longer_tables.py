"""The table and the figure of longer sequences."""

import math
import re
import types

import pytest

from lra import models
from lra.board import charts, frame, inputs, kinds
from lra.core import tasks
from tests.helpers.page import Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')


def of(right, **others):
  return {name: {'examples': 1000, 'accuracy': value, 'loss': 0.5}
          for name, value in right.items()} | others


@pytest.fixture
def board(tmp_path):
  runs = [make('local', task='parity', seed=seed, longer=of(
              {'40-256': 0.6, '128': 0.5 + 0.1 * seed, '64': 0.75}))
          for seed in (0, 1)]
  runs += [make('performer', task='parity', longer=of({'64': 1.0, '128': 0.9})),
           make('linformer', task='parity')]
  place = Place(tmp_path, runs)
  found, = (b for b in frame.load(place.runs, place.baselines)[0]
            if b.task.name == 'parity')
  return found


def test_scores_are_scaled_means_of_the_seeds(board):
  table = kinds.longer(board)
  assert [column.name for column in table.columns][2:] == [
      '32 (trained)', '64', '128', '40-256', 'seeds']
  assert [row.model for row in table.items] == ['performer', 'local']
  local = table.items[1]
  # Of two classes, 75% of right answers are half way from guessing to all.
  values = [column.text(local).split()[0] for column in table.columns[3:]]
  assert values == ['0.500', '0.100', '0.200', '2']
  # The interval of .5 and .6 is Student's with one degree of freedom; twice it.
  _, _, high = kinds.score(local.row, board.task, '128')
  assert high == pytest.approx(min(2 * (0.55 + 12.7062 * 0.05) - 1, 1.0),
                               abs=1e-4)
  assert kinds.score(table.items[0].row, board.task, '40-256') is None


def test_the_figure_has_a_panel_for_each_row(board, tmp_path):
  figure, = (f for f in charts.of_task(board)
             if f.name == 'parity_lengths.svg')
  svg = figure.draw().decode()
  assert len(re.findall('>(?:local|performer)<', svg)) == 2
  assert '>linformer<' not in svg


def test_published_scores_stand_beside_rows_with_the_same_settings(
    tmp_path, monkeypatch):
  paper = dict(task='parity', test='64', model='Local', scaled=0.25,
               spread=math.nan, source='a paper', here='local', changes='')
  paper, other = (types.SimpleNamespace(**paper | changes) for changes in (
      {}, {'changes': 'model.window=3'}))
  monkeypatch.setattr(inputs, 'published_probes', lambda: [paper, other])
  runs = [make('local', task='parity', longer=of({'64': 0.75}))]
  place = Place(tmp_path, runs)
  found, = (b for b in frame.load(place.runs, place.baselines)[0]
            if b.task.name == 'parity')
  table = kinds.beside_published(found)
  texts = [{column.name: column.text(item) for column in table.columns}
           for item in table.items]
  # 75% of two classes are a scaled accuracy of 0.5.
  assert texts[0]['difference'] == '+0.250' and texts[1]['here'] == '–'


def test_the_committed_published_scores_name_tasks_and_mixers_here():
  found = inputs.published_probes()
  assert found
  for paper in found:
    assert paper.test in tasks.get(paper.task).longer
    assert models.module(paper.here)
    assert -0.1 < paper.scaled <= 1
