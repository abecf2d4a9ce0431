"""Examples in the documents run, and their links have a target."""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
import types
import urllib.parse

import numpy as np
import pytest

import lra
from lra import models
from lra.configs.protocols import PROTOCOLS
from lra.core import tasks
from lra.many import execute
from lra.schema import result
from tests.helpers import documents, mixer_oracle
from tests.helpers.paths import ROOT


def _hash(text):
  return hashlib.sha256(text.encode()).hexdigest()


def _train(folder, data_dir, name, made_with):
  """Trains and records a model; returns the warnings about model files.

  `made_with` is the hash of the model's file that the record must have.
  """
  done = subprocess.run(
      [sys.executable, 'run_lra.py',
       f'--config=configs/{name}.py:listops_mini',
       f'--config.data_dir={data_dir}', '--config.train.steps=5', '--record'],
      cwd=folder, text=True, capture_output=True, check=False,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(folder)})
  assert done.returncode == 0, done.stderr
  assert 'first operator' in done.stdout
  assert f'| {name}' in (
      folder / 'docs/leaderboard/listops_mini.md').read_text()
  record, = folder.glob(f'lra/results/runs/listops_mini/{name}-*.json')
  kept = json.loads(record.read_text())
  # The model's files are not committed, so the record is marked as modified.
  assert kept['git_commit'] and kept['git_dirty'] is True
  assert kept['model_sha256'] == made_with
  return '\n'.join(
      line for line in done.stderr.splitlines() if 'lra/models/' in line)


@pytest.mark.parametrize('name', ['mean', 'aft'])
def test_new_models_of_the_documents_make_what_a_mixer_makes(
    name, tmp_path, monkeypatch):
  """The example mixers ignore padding, and their configs can be built."""
  (tmp_path / f'{name}.py').write_text(
      documents.example(f'lra/models/{name}.py'))
  monkeypatch.setattr(models, 'FOLDER', tmp_path)
  monkeypatch.setattr(models, '__path__', [str(tmp_path)])
  config = types.ModuleType(f'config_{name}')
  exec(documents.example(f'configs/{name}.py'), config.__dict__)
  assert config.get_config('listops_mini').model.name == name
  x, mask = mixer_oracle.ragged(5, 3, width=16)
  cls = models.mixer(name)
  mixer = cls(**{
      field: value for field, value in (('num_heads', 2), ('qkv_width', 16))
      if field in cls.__dataclass_fields__})
  variables = mixer_oracle.init(mixer, x, mask)
  y = mixer_oracle.apply(mixer, variables, x, mask)
  assert y.shape == x.shape and np.isfinite(y).all()
  beyond = mixer_oracle.apply(
      mixer, variables, np.where(mask[..., None], x, 7), mask)
  np.testing.assert_array_equal(y[mask], beyond[mask])


@pytest.mark.full
def test_new_models_of_the_documents_train(mini_data, tmp_path):
  for name in ('lra', 'configs', 'kernels', 'data_prep'):
    shutil.copytree(ROOT / name, tmp_path / name,
                    ignore=shutil.ignore_patterns('runs'))
  shutil.copy(ROOT / 'run_lra.py', tmp_path)
  (tmp_path / '.gitignore').write_text('__pycache__/\n')
  for command in ('init -q', 'add -A', 'commit -qm all'):
    subprocess.run(
        ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', *command.split()),
        cwd=tmp_path, check=True)
  files = {name: documents.example(name) for name in (
      'lra/models/mean.py', 'configs/mean.py', 'lra/models/aft.py',
      'configs/aft.py')}
  for name, text in files.items():
    (tmp_path / name).write_text(text)
  mean, aft = files['lra/models/mean.py'], files['lra/models/aft.py']
  for name, text in (('mean', mean), ('aft', aft)):
    assert not _train(tmp_path, mini_data, name, _hash(text))
  # After an edit, warnings name the changed file and the missing ABOUT.
  (tmp_path / 'lra/models/mean.py').write_text(
      mean.replace("ABOUT = About('linear', 'O(L D^2)')\n", ''))
  said = _train(tmp_path, mini_data, 'mean', _hash(mean))
  assert 'a valid family and cost by ABOUT' in said
  assert 'Until then --list leaves' in said
  assert 'lra/models/mean.py has changed' in said


@pytest.mark.parametrize('path', ['README.md', 'docs/quickstart.md'])
def test_the_output_of_the_first_run_has_the_lines_that_it_prints(path):
  """Only numbers and the machine may differ from the printed output."""
  def lines(text):
    return re.sub(r'[\d.]+', '0', re.sub(r' on cpu .*', '', text))

  name = 'simpletron-b2e07619-s0.json'
  printed = execute.summary(
      result.read(ROOT / 'lra/results/runs/listops_mini' / name),
      pathlib.Path('runs/listops_mini/simpletron/b2e07619-s0'))
  assert lines(printed) in lines(documents.read(path))


def test_the_table_of_protocols_is_theirs():
  """Compares each task's cells ('yes', 'default' or '–') with PROTOCOLS."""
  text = documents.read('docs/protocols.md')
  header, _, *lines = [
      [cell.strip() for cell in line.strip('| \n').split('|')]
      for line in re.search(
          r'^\| task \| `simpletron`(?:.*\n)+?(?=\n)', text, re.M)[0]
      .splitlines()]
  assert [name.strip('`') for name in header[1:]] == list(PROTOCOLS)
  seen = set()
  for names, *cells in lines:
    named = {t for t in tasks.TASKS if f'`{t}`' in names}
    if not named:
      group = 'mini' if '_mini' in names else 'probe'
      named = {t.name for t in tasks.TASKS.values()
               if t.group == group} - seen
    for task in named:
      has = [task in known for known in PROTOCOLS.values()]
      expected = ['yes' if known else '–' for known in has]
      expected[has.index(True)] = 'default'
      assert cells == expected, task
    seen |= named
  assert seen == set(tasks.TASKS)


@pytest.mark.parametrize('path', documents.paths())
def test_local_links_lead_somewhere(path):
  for target, anchor in documents.links(path):
    file = (ROOT / path).parent / target if target else ROOT / path
    assert file.exists(), f'{path}: {target}'
    if anchor and file.suffix == '.md':
      assert anchor in documents.anchors(file), f'{path}: {target}#{anchor}'


@pytest.mark.parametrize('page', ['README.md', 'leaderboard.md'])
def test_the_scores_of_the_arena_are_those_of_the_records(page):
  """Compares the mean accuracies in a page's first table with records."""
  suite = tomllib.loads((ROOT / 'lra/board/suite.toml').read_text('utf-8'))
  of = {task['ability']: task['name'] for task in suite['tasks']}
  results = ROOT / 'lra/results'
  head, _, *rows = [
      [cell.strip('* ') for cell in line.strip('|\n').split('|')]
      for line in re.search(r'^\| mechanism \|(?:.*\n)+?(?=\n)',
                            documents.read(page), re.M)[0].splitlines()]
  assert len(rows) > 5 and of.keys() & head
  averaged = [task['name'] for task in suite['tasks'] if 'column' in task]
  for name, *cells in rows:
    name = re.sub(r'\[(\w+)\].*', r'\1', name)
    means = {}
    for task in of.values():
      found = [json.loads(path.read_text()) for path in (
          results / 'runs' / task).glob(f'{name}-*-s*.json')]
      scores = [r['test']['accuracy'] for r in found
                if r['protocol'] == suite['protocol'] and r.get('search')
                and r['changes'].keys() <= {'train.learning_rate'}]
      if name == 'baseline':
        floors = json.loads((results / f'floors/{task}.json').read_text())
        scores = [max(f['accuracy'] for f in floors['floors'].values())]
      if scores:
        means[task] = statistics.fmean(scores)
    if name != 'baseline' and means.keys() >= set(averaged):
      means['average'] = statistics.fmean(map(means.get, averaged))
    for ability, shown in zip(head[1:], cells, strict=True):
      if (task := of.get(ability, ability)) in {*of.values(), 'average'}:
        mean = f'{100 * means[task]:.1f}' if task in means else '–'
        assert shown.split()[0] == mean, f'{name} on {task}'


def test_the_reference_is_current():
  spec = importlib.util.spec_from_file_location(
      'reference', ROOT / 'docs/reference.py')
  reference = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(reference)
  for path, text in reference.pages().items():
    assert path.read_text(encoding='utf-8') == text, (
        'run `python docs/reference.py` and commit what it writes')


def test_the_readme_shows_the_mixer_that_is_tested():
  start, *lines = documents.example('mix').splitlines()
  assert start in documents.example('lra/models/aft.py')
  assert '\n'.join(lines) in documents.example('lra/models/aft.py')


@pytest.mark.parametrize('name', ['kernels', 'use-a-mixer'])
def test_the_examples_for_own_code_run(name):
  found = {'__name__': 'example'}
  exec(documents.example(name), found)
  assert np.isfinite(found.get('y', 0)).all()


def test_the_example_of_records_runs(monkeypatch):
  monkeypatch.chdir(ROOT)
  exec(documents.example('records'), {})


@pytest.fixture(scope='module')
def built(tmp_path_factory):
  """Returns the folder of the documentation site."""
  folder = tmp_path_factory.mktemp('docs')
  done = subprocess.run(
      [sys.executable, '-m', 'sphinx', '-W', '-q', '-b', 'html', 'docs',
       folder], cwd=ROOT, text=True, capture_output=True, check=False)
  assert done.returncode == 0, done.stderr
  return folder


@pytest.mark.full
def test_markdown_outside_docs_has_pages(built):
  """The pages have the search, and nothing of Markdown is a download."""
  index = (built / 'search.html').read_text(), (
      built / 'searchindex.js').read_text()
  assert not list(built.rglob('*.md')) and '_static/searchtools.js' in index[0]
  for path in (ROOT / 'docs' / 'pages').iterdir():
    title = path.read_text('utf-8').partition('\n')[0].removeprefix('# ')
    page = (built / 'pages' / f'{path.stem}.html').read_text('utf-8')
    assert f'<title>{title} - lra {lra.__version__}</title>' in page
    assert f'"pages/{path.stem}"' in index[1]


@pytest.mark.full
def test_links_between_pages_lead_somewhere(built):
  """Also those of pages whose files are in another folder."""
  for page in built.rglob('*.html'):
    text = page.read_text('utf-8')
    for target in re.findall(r'(?:href|src)="([^"#?:]+)["#?]', text):
      assert (page.parent / urllib.parse.unquote(target)).exists(), (
          f'{page}: {target}')
  first = (built / 'pages' / 'leaderboard.html').read_text('utf-8')
  task = (built / 'leaderboard' / 'listops_mini.html').read_text('utf-8')
  assert 'href="../leaderboard/listops_mini.html"' in first
  assert 'href="../pages/leaderboard.html"' in task


@pytest.mark.full
def test_the_sidebar_has_all_pages_in_groups(built):
  page = (built / 'index.html').read_text('utf-8')
  tree = re.search('<div class="sidebar-tree">(.*?)</aside>', page, re.S)[1]
  assert re.findall('caption-text">([^<]*)<', tree) == [
      'Start', 'Guides', 'Results', 'Reference']
  docs = ROOT / 'docs'
  assert set(re.findall('href="([^"#]+)"', tree)) == {
      str(path.relative_to(docs).with_suffix('.html'))
      for path in docs.rglob('*.md') if path != docs / 'index.md'}
