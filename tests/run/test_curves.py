"""Tests curves.png, the learning curves of one run."""

import json
import math

import numpy as np
import pytest
from matplotlib import image

from lra.core.errors import UserError
from lra.run import curves


def log(split, step, **changes):
  return json.dumps({
      'step': step, 'split': split, 'loss': 2 * math.exp(-step / 900),
      'accuracy': 0.5 - 0.4 * math.exp(-step / 700), 'learning_rate': 0.1,
      'examples_per_s': 100.0, 'seconds': step / 10, **changes}) + '\n'


LINES = [log(split, step) for step in range(100, 1001, 100)
         for split in ('train', *(['val'] if step % 500 == 0 else []))]


def draw(folder, text, floors=None):
  (folder / 'metrics.jsonl').write_text(text)
  curves.plot(folder / 'metrics.jsonl', folder / 'curves.png', floors)
  assert sorted(p.name for p in folder.iterdir()) == [
      'curves.png', 'metrics.jsonl']
  return (folder / 'curves.png').read_bytes()


def test_same_metrics_give_the_same_bytes(tmp_path):
  text = ''.join(LINES)
  assert draw(tmp_path, text) == draw(tmp_path, text)


@pytest.mark.parametrize(('scores', 'step'), [
    ([], None), ([0.9, 0.949], None), ([0.9, 0.95, 1.0], 200),
    ([0.96, 0.2], 100), ([None, 1.0], 200)])
def test_the_first_step_with_95_percent_on_validation(tmp_path, scores, step):
  path = tmp_path / 'metrics.jsonl'
  path.write_text(log('train', 50, accuracy=1.0) + ''.join(
      log('val', 100 * i, accuracy=score)
      for i, score in enumerate(scores, 1)) + log('test', 900, accuracy=1.0))
  assert curves.learnt_step(curves.read(path)) == step


def test_a_torn_last_line_is_left_out(tmp_path):
  whole = draw(tmp_path, ''.join(LINES))
  assert draw(tmp_path, ''.join(LINES) + log('train', 1100)[:30]) == whole
  assert draw(tmp_path, ''.join(LINES) + log('train', 1100)) != whole


def test_a_bad_line_elsewhere_is_named(tmp_path):
  lines = [*LINES[:2], LINES[2][:20] + '\n', *LINES[3:]]
  with pytest.raises(UserError, match='metrics.jsonl, line 3 is not'):
    draw(tmp_path, ''.join(lines))
  assert not (tmp_path / 'curves.png').exists()


def test_baselines_are_drawn_across_the_whole_accuracy_panel(tmp_path):
  draw(tmp_path, ''.join(LINES), {'majority': 0.3})
  pixels = image.imread(tmp_path / 'curves.png')[..., :3]
  grey = np.all(np.abs(pixels - 0x66 / 255) < 0.1, axis=-1)
  half = pixels.shape[1] // 2
  dashes = grey[:, half:].sum(1).max()
  assert dashes > 0.3 * half  # a dashed line has gaps
  assert grey[:, :half].sum(1).max() < 0.1 * half


@pytest.mark.parametrize('text', [
    '', log('train', 10), log('train', 10, loss=None, accuracy=None),
    log('train', 10, loss=math.nan)])
def test_hardly_any_points_still_make_a_figure(tmp_path, text):
  assert draw(tmp_path, text, {'majority': 0.5}).startswith(b'\x89PNG')
