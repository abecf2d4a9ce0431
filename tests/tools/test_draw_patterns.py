"""Tests of the command that draws a model's attention pattern."""

import pathlib

import numpy as np
import pytest
from matplotlib import image

from lra.core.errors import UserError
from tools import patterns


@pytest.mark.full
@pytest.mark.parametrize('model,panels', [('bigbird', 1), ('sparse_fixed', 2)])
def test_command_draws_a_png(model, panels, tmp_path, capsys):
  out = tmp_path / 'pattern.png'
  patterns.main([f'--model={model}', '--length=300', f'--out={out}'])
  assert capsys.readouterr().out.strip() == str(out)
  picture = image.imread(out)
  height, width = picture.shape[:2]
  assert width > height * 0.7 * panels
  white = (picture[..., :3] == 1).all(-1).mean()
  assert 0.2 < white < 0.9
  assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 3


@pytest.mark.parametrize('model', ['duo', 'etc'])
def test_patterns_beside_other_attention_can_be_drawn(model):
  pattern, = patterns.model_patterns(model, 100, {'radius': 5})
  seen = pattern.kinds(100) > 0
  assert seen[60, 55] and not seen[60, 54] and seen[60, 0]
  assert seen[0, 60] == (model == 'etc')


def test_command_sets_fields_and_names_the_file(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  drawn = []
  monkeypatch.setattr(patterns, 'draw', lambda *args: drawn.append(args))
  patterns.main(['--model=longformer', '--length=64', '--set=window=10'])
  (pattern,), length, _, path = drawn[0]
  assert (pattern.radius, length) == (5, 64)
  assert pathlib.Path(path).name == 'longformer-64.png'


@pytest.mark.parametrize('argv,message', [
    (['--model=bigburd'], 'Unknown model'),
    (['--model=reformer'], 'no fixed pattern'),
    (['--model=local', '--set=window=3'], '--set does not fit local'),
    (['--model=local', '--set=block_size'], 'not FIELD=VALUE'),
    (['--model=local', '--length=0'], '--length'),
])
def test_command_refuses(argv, message):
  with pytest.raises(UserError, match=message):
    patterns.main(argv)
