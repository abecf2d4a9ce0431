"""Tests that an unusable model file gives an error of one sentence."""

import sys

import pytest

from lra import models
from lra.core import signals
from lra.core.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Replaces lra/models by a temporary folder; undoes its imports."""
  monkeypatch.setattr(models, 'FOLDER', tmp_path)
  monkeypatch.setattr(models, '__path__', [str(tmp_path)])
  yield tmp_path
  sys.modules.pop('lra.models.mine', None)


@pytest.mark.parametrize('text, sentence', [
    ('\nx = (\n', "lra/models/mine.py, line 2: SyntaxError: '(' was never"),
    ('\n\nimport nothing_like\n', "lra/models/mine.py, line 3: ModuleNotFound"
     "Error: No module named 'nothing_like'."),
    ('from lra.nn.mixer import Nothing\n',
     'lra/models/mine.py, line 1: ImportError: cannot import name'),
    ('\nx = 1 / 0\n', 'lra/models/mine.py, line 2: ZeroDivisionError: '),
    ('raise SystemExit(0)\n', 'lra/models/mine.py, line 1: SystemExit: 0.'),
    ('raise KeyboardInterrupt\n',
     'lra/models/mine.py, line 1: KeyboardInterrupt.'),
    ('', 'lra/models/mine.py has no mixer: define a class Mixer(nn.Module)'),
    ('class Mixer:\n  pass\n', 'lra/models/mine.py has no mixer: define a '),
    ('Mixer = 3\n', 'lra/models/mine.py has no mixer: define a class Mixer'),
])
def test_a_bad_model_is_one_sentence(folder, monkeypatch, text, sentence):
  monkeypatch.setattr(signals, 'listening', lambda: True)
  (folder / 'mine.py').write_text(text)
  with pytest.raises(UserError) as error:
    models.mixer('mine')
  assert str(error.value).startswith(sentence)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('raised, heard', [
    ('from lra.core.signals import Stop\nraise Stop\n', True),
    ('raise KeyboardInterrupt\n', False)])
def test_ctrl_c_while_a_model_is_imported_is_not_its_fault(
    folder, monkeypatch, raised, heard):
  monkeypatch.setattr(signals, 'listening', lambda: heard)
  (folder / 'mine.py').write_text(raised)
  with pytest.raises(KeyboardInterrupt):
    models.mixer('mine')


def test_an_unknown_model_names_those_there_are(folder):
  (folder / 'mine.py').write_text('')
  with pytest.raises(UserError, match="'yours'.* config.model.name.*mine"):
    models.mixer('yours')


def test_models_that_share_a_file_have_a_class_each():
  shared = {name: (file, cls) for file, classes in models.SHARED.items()
            for name, cls in classes.items()}
  assert set(shared) <= set(models.names())
  assert 'spectral' not in models.names()
  found = {name: models.mixer(name) for name in shared}
  assert len(set(found.values())) == len(shared)
  for name, mixer in found.items():
    assert (mixer.__module__, mixer.__name__) == (
        f'lra.models.{shared[name][0]}', shared[name][1])
