"""The notebooks in lra/examples run and print what they promise."""

import importlib.util

import pytest

from tests.helpers.paths import ROOT

EXAMPLES = ROOT / 'lra' / 'examples'
MISSING = [name for name in ('nbformat', 'nbclient', 'ipykernel')
           if importlib.util.find_spec(name) is None]
needs_notebook = pytest.mark.skipif(
    bool(MISSING), reason=f'{", ".join(MISSING)}: the extra notebook is not '
    'installed')


def _executed(name, folder, monkeypatch):
  """Returns a notebook after all of its cells have run in `folder`."""
  import nbclient
  import nbformat
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  monkeypatch.setenv('IPYTHONDIR', str(folder / 'ipython'))
  notebook = nbformat.read(EXAMPLES / name, as_version=4)
  nbformat.validate(notebook)
  nbclient.NotebookClient(
      notebook, timeout=600, kernel_name='python3',
      resources={'metadata': {'path': str(folder)}}).execute()
  return notebook


def _outputs(notebook, kind):
  return [output['data'][kind] for cell in notebook.cells
          for output in cell.get('outputs', ())
          if kind in output.get('data', ())]


@pytest.mark.full
@needs_notebook
def test_a_mixer_of_a_cell_trains(mini_data, tmp_path, monkeypatch):
  monkeypatch.setenv('TFDS_DATA_DIR', str(mini_data))
  notebook = _executed('first_model.ipynb', tmp_path, monkeypatch)
  pictures = _outputs(notebook, 'image/png')
  assert len(pictures) == 2 and pictures[0] != pictures[1]
  printed = ''.join(output['text'] for cell in notebook.cells
                    for output in cell.get('outputs', ())
                    if output.get('name') == 'stdout')
  assert printed.count('with probability') == 10
  accuracy = float(printed.split('test accuracy ')[1].split('%')[0])
  assert 10 < accuracy <= 100


@pytest.mark.full
@needs_notebook
def test_the_figure_is_drawn_from_the_records(tmp_path, monkeypatch):
  pytest.importorskip('pandas')
  notebook = _executed('speed_and_accuracy.ipynb', tmp_path, monkeypatch)
  assert len(_outputs(notebook, 'image/png')) == 1
  assert 'mlp_mixer' in ''.join(_outputs(notebook, 'text/plain'))


@pytest.mark.skipif('nbformat' in MISSING, reason='nbformat is not installed')
@pytest.mark.parametrize('path', sorted(EXAMPLES.glob('*.ipynb')),
                         ids=lambda path: path.stem)
def test_they_are_committed_without_outputs(path):
  import nbformat
  notebook = nbformat.read(path, as_version=4)
  for cell in notebook.cells:
    assert not cell.get('outputs') and not cell.get('execution_count')
