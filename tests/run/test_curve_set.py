"""Tests the figure that compares validation accuracies of several runs."""

import json
import pathlib
import shutil

import pytest
from matplotlib import colors

from lra.core.errors import UserError
from lra.run import curves
from tests.helpers import scored

SCORES = {0: {100: 0.2, 200: 0.4, 300: 0.5}, 1: {100: 0.4, 200: 0.5}}


def make(folder, seed=0, scores=None, model='transformer', width=64,
         task='text_mini', **result):
  """Makes a run directory with training and validation points."""
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps({
      'seed': seed, 'task': task, 'encoder': {'width': width},
      'model': {'name': model}}))
  (folder / 'metrics.jsonl').write_text(''.join(
      json.dumps({'step': step, 'split': split, 'loss': 1.0,
                  'accuracy': value}) + '\n'
      for step, value in (scores or SCORES[0]).items()
      for split, value in (('train', 0.9), ('val', value))))
  return folder


@pytest.fixture
def axes(tmp_path, monkeypatch):
  """Returns a function that draws runs of some folders and returns the axes."""
  drawn = []
  draw = curves._draw
  monkeypatch.setattr(
      curves, '_draw', lambda lines: drawn.append(draw(lines)) or drawn[-1])
  def of(*folders):
    curves.plot_runs(folders, tmp_path / 'figure.svg')
    return drawn[-1].axes[0]
  return of


def lines(ax):
  return {line.get_label(): list(zip(*line.get_data(), strict=True))
          for line in ax.lines}


def test_seeds_are_one_line_at_the_steps_of_all(tmp_path, axes):
  ax = axes(*(make(tmp_path / f's{seed}', seed, SCORES[seed])
              for seed in (1, 0)))
  (name, points), = lines(ax).items()
  assert name == 'transformer (2 seeds)'
  assert points == [(100, pytest.approx(30)), (200, pytest.approx(45))]
  band, = ax.collections
  corners = {tuple(round(x, 6) for x in xy)
             for xy in band.get_paths()[0].vertices}
  assert corners == {(100, 20), (100, 40), (200, 40), (200, 50)}
  assert 'bands' in ax.get_title() and 'text_mini:' in ax.get_title()


def fit(folder, **train):
  """Sets hardware settings, fields of `config.train`, in a run directory."""
  path = folder / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {'train': train}))
  return folder


def test_seeds_that_were_fitted_to_other_machines_are_one_line(tmp_path, axes):
  ax = axes(fit(make(tmp_path / 'a', 0, SCORES[0]), microbatch_size=2),
            fit(make(tmp_path / 'b', 1, SCORES[1]), microbatch_size=4))
  assert set(lines(ax)) == {'transformer (2 seeds)'}


def test_one_seed_with_other_fittings_is_compared(tmp_path, axes):
  ax = axes(*(fit(make(tmp_path / f'{n}{seed}', seed), microbatch_size=n)
              for n in (2, 4) for seed in (0, 1)))
  assert set(lines(ax)) == {
      f'transformer, train.microbatch_size={n} (2 seeds)' for n in (2, 4)}


def test_lines_are_named_by_what_differs(tmp_path, axes):
  ax = axes(make(tmp_path / 'a'), make(tmp_path / 'b', width=128),
            make(tmp_path / 'c', model='local'))
  assert set(lines(ax)) == {'transformer, encoder.width=64',
                            'transformer, encoder.width=128', 'local'}
  assert len({colors.to_hex(line.get_color()) for line in ax.lines}) == 3


def _of_runs(ax):
  """Returns {label: points} of lines without those of baselines."""
  return {name: points for name, points in lines(ax).items()
          if not name.startswith('baseline')}


def _record(path, seed, accuracy, config, **changes):
  """Writes a record with best step 200 whose validation has this accuracy."""
  record = json.loads((pathlib.Path(__file__).parents[1] / 'board' / 'data'
                       / 'result.json').read_text())
  right = round(accuracy * 10)
  scores = scored.of([[right, 10 - right], [0, 0]])
  record |= {'val': scores, 'test': scores, 'best_step': 200, 'seed': seed}
  record['config'] |= {**config, 'seed': seed}
  path.write_text(json.dumps(record | changes))
  return path


@pytest.mark.parametrize('spoil', [
    lambda x: (x / 'metrics.jsonl').unlink(),
    lambda x: (x / 'metrics.jsonl').write_text('{"step": 1}\n{}'),
    lambda x: (x / 'config.json').write_text('{'), shutil.rmtree])
def test_one_run_without_a_curve_is_left_out(tmp_path, axes, capsys, spoil):
  spoil(make(tmp_path / 'x', 1))
  ax = axes(tmp_path / 'x', make(tmp_path / 'y'))
  assert set(lines(ax)) == {'transformer'}
  said = capsys.readouterr().err
  assert said.startswith('left out: ') and str(tmp_path / 'x') in said


def test_records_are_points_at_their_step(tmp_path, axes):
  paths = [_record(tmp_path / f'{seed}.json', seed, accuracy, {})
           for seed, accuracy in ((0, 0.5), (1, 0.7))]
  ax = axes(*paths)
  (name, points), = _of_runs(ax).items()
  assert name.endswith('(2 seeds)')
  assert sorted(points) == [(200, pytest.approx(50)), (200, pytest.approx(70))]
  assert 'bands' not in ax.get_title() and 'diamonds' in ax.get_title()
  bad = _record(tmp_path / 'x.json', 0, 0.5, {}, val=None)
  with pytest.raises(UserError, match='x.json has no validation accuracy'):
    axes(bad)


@pytest.mark.parametrize('form', ['png', 'svg'])
def test_same_runs_give_the_same_bytes(tmp_path, form):
  folders = [make(tmp_path / 'a'), make(tmp_path / 'b', 1, SCORES[1])]
  data = []
  for order in (folders, folders[::-1]):
    curves.plot_runs(order, tmp_path / f'figure.{form}')
    data.append((tmp_path / f'figure.{form}').read_bytes())
  assert data[0] == data[1]


def _edited(change):
  def edit(folder):
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps({**config, **change}))
  return edit


@pytest.mark.parametrize('spoil, out, words', [
    (lambda x: shutil.rmtree(x), 'png', 'x is no run, since'),
    (lambda x: (x / 'config.json').unlink(), 'png', 'x is no run, since'),
    (lambda x: (x / 'metrics.jsonl').unlink(), 'png',
     'Cannot read .*metrics.jsonl'),
    (lambda x: (x / 'metrics.jsonl').write_text(''), 'png',
     'no validation accuracy'),
    *((lambda x, line=line: (x / 'metrics.jsonl').write_text(f'{line}\n{{}}'),
       'png', 'line 1 is not a log point') for line in (
           '[' * 100_000, '{"split": [], "step": 1}',
           '{"split": "val", "step": "1"}',
           f'{{"split": "val", "step": 1{"0" * 400}}}', '3',
           f'{{"split": "val", "step": 1, "accuracy": 1{"0" * 400}}}')),
    (lambda x: make(x.parent / 'y'), 'png', 'one config and one seed'),
    (lambda x: None, 'bmp', 'neither .png nor .svg'),
    *((_edited(change), 'png', 'x is no run') for change in (
        {'seed': [1]}, {'task': {'a': 1}}, {'model': {'name': [1]}},
        {'model': []}))])
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, spoil, out, words):
  spoil(make(tmp_path / 'x'))
  folders = sorted({tmp_path / 'x', *tmp_path.iterdir()})
  with pytest.raises(UserError, match=words) as error:
    curves.plot_runs(folders, tmp_path / f'figure.{out}')
  assert '\n' not in str(error.value)
  assert not (tmp_path / f'figure.{out}').exists()
