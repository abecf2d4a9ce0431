"""A model's file that cannot be used is one sentence, as a config's is."""

import sys

import pytest

from lra import models
from lra.errors import UserError
from lra.system import signals


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """In the place of lra/models; what is imported from it is forgotten."""
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
    models.module('mine')
  assert str(error.value).startswith(sentence)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('raised, heard', [
    ('from lra.system.signals import Stop\nraise Stop\n', True),
    ('raise KeyboardInterrupt\n', False)])
def test_ctrl_c_while_a_model_is_imported_is_not_its_fault(
    folder, monkeypatch, raised, heard):
  monkeypatch.setattr(signals, 'listening', lambda: heard)
  (folder / 'mine.py').write_text(raised)
  with pytest.raises(KeyboardInterrupt):
    models.module('mine')


def test_an_unknown_model_names_those_there_are(folder):
  (folder / 'mine.py').write_text('')
  with pytest.raises(UserError, match="'yours'.* config.model.name .*mine"):
    models.module('yours')
