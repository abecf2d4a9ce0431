"""The notebook in lra/examples runs and prints what it promises."""

import importlib.util
import os

import pytest

from tests.helpers.paths import ROOT

NOTEBOOK = ROOT / 'lra' / 'examples' / 'first_model.ipynb'
MISSING = [name for name in ('nbformat', 'nbclient', 'ipykernel')
           if importlib.util.find_spec(name) is None]
needs_notebook = pytest.mark.skipif(
    bool(MISSING), reason=f'{", ".join(MISSING)}: the extra notebook is not '
    'installed')


def _outputs(notebook, kind):
  return [output['data'][kind] for cell in notebook.cells
          for output in cell.get('outputs', ())
          if kind in output.get('data', ())]


@pytest.mark.full
@needs_notebook
def test_the_notebook_runs(mini_data, tmp_path, monkeypatch):
  import nbclient
  import nbformat
  monkeypatch.setenv('TFDS_DATA_DIR', str(mini_data))
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  monkeypatch.setenv('IPYTHONDIR', str(tmp_path / 'ipython'))
  notebook = nbformat.read(NOTEBOOK, as_version=4)
  nbformat.validate(notebook)
  nbclient.NotebookClient(
      notebook, timeout=600, kernel_name='python3',
      resources={'metadata': {'path': str(tmp_path)}}).execute()
  if place := os.environ.get('LRA_NOTEBOOK'):  # path to keep the outputs at
    nbformat.write(notebook, place)
  pictures = _outputs(notebook, 'image/png')
  assert len(pictures) == 2 and pictures[0] != pictures[1]
  printed = ''.join(output['text'] for cell in notebook.cells
                    for output in cell.get('outputs', ())
                    if output.get('name') == 'stdout')
  assert printed.count('with probability') == 10
  accuracy = float(printed.split('test accuracy ')[1].split('%')[0])
  assert 10 < accuracy <= 100


@pytest.mark.skipif('nbformat' in MISSING, reason='nbformat is not installed')
def test_it_is_committed_without_outputs():
  import nbformat
  notebook = nbformat.read(NOTEBOOK, as_version=4)
  for cell in notebook.cells:
    assert not cell.get('outputs') and not cell.get('execution_count')
