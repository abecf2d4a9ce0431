"""The committed models load and score what their cards state."""

import pathlib
import re

import pytest

import lra
from lra.schema import result

MODELS = sorted(
    (pathlib.Path(lra.__file__).parent / 'examples/models').iterdir())


@pytest.mark.parametrize('folder', [
    pytest.param(folder, id=folder.name, marks=[pytest.mark.full] * (i > 0))
    for i, folder in enumerate(MODELS)])
def test_a_committed_model_has_the_score_of_its_card(
    folder, mini_data, monkeypatch, quick_runs):
  monkeypatch.setenv('TFDS_DATA_DIR', str(mini_data))
  card = re.search(r'\| test accuracy \| ([\d.]+)% \|',
                   (folder / 'README.md').read_text())
  scores = lra.load(folder).evaluate('test', same_data=True)
  # On another machine, rounding may change the class of an example or two.
  assert 100 * scores['accuracy'] == pytest.approx(float(card[1]), abs=0.25)


@pytest.mark.parametrize('folder', MODELS, ids=lambda folder: folder.name)
def test_a_committed_model_is_of_a_finished_run_of_its_protocol(folder):
  kept = result.read(folder / 'result.json')
  assert kept.status == 'ok' and not kept.git_dirty and not kept.changes
  assert sum(p.stat().st_size for p in folder.iterdir()) < 5e5
