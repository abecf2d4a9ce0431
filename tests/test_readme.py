"""The README's example of a new model is complete."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from configs.protocols import PROTOCOLS
from lra import tasks

ROOT = pathlib.Path(__file__).parent.parent


def _hash(text):
  return hashlib.sha256(text.encode()).hexdigest()


def _train(folder, data_dir, name, made_with):
  """Trains a model of this hash; returns what is said of its file."""
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
  # Its files are not in the commit yet, and the record says so.
  assert kept['git_commit'] and kept['git_dirty'] is True
  assert kept['model_sha256'] == made_with
  return '\n'.join(
      line for line in done.stderr.splitlines() if 'lra/models/' in line)


def test_new_models_of_the_readme_train(mini_data, tmp_path):
  for name in ('lra', 'configs', 'kernels', 'data_prep'):
    shutil.copytree(ROOT / name, tmp_path / name,
                    ignore=shutil.ignore_patterns('runs'))
  shutil.copy(ROOT / 'run_lra.py', tmp_path)
  (tmp_path / '.gitignore').write_text('__pycache__/\n')
  for command in ('init -q', 'add -A', 'commit -qm all'):
    subprocess.run(
        ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', *command.split()),
        cwd=tmp_path, check=True)
  readme = (ROOT / 'README.md').read_text()
  _, *files = re.findall(r'```python\n(.*?)```', readme, re.S)
  names = ('lra/models/mean.py', 'configs/mean.py',
           'lra/models/aft.py', 'configs/aft.py')
  for name, text in zip(names, files, strict=True):
    (tmp_path / name).write_text(text)
  mean, _, aft, _ = files
  for name, text in (('mean', mean), ('aft', aft)):
    assert not _train(tmp_path, mini_data, name, _hash(text))
  # An edited file is not the one that was trained, nor one without its family
  # in order.
  (tmp_path / 'lra/models/mean.py').write_text(
      mean.replace("FAMILY = 'linear'\n", ''))
  said = _train(tmp_path, mini_data, 'mean', _hash(mean))
  assert 'the constant FAMILY, ' in said and 'Until then --list leaves' in said
  assert 'lra/models/mean.py is another file than runs/' in said


def test_the_table_of_protocols_is_theirs():
  """Each task has the protocols that its line says, the default first."""
  readme = (ROOT / 'README.md').read_text()
  header, _, *lines = [
      [cell.strip() for cell in line.strip('| \n').split('|')]
      for line in re.search(
          r'^\| task \| `simpletron`(?:.*\n)+?(?=\n)', readme, re.M)[0]
      .splitlines()]
  assert [name.strip('`') for name in header[1:]] == list(PROTOCOLS)
  seen = set()
  for names, *cells in lines:
    named = {t for t in tasks.TASKS if f'`{t}`' in names}
    if not named or '_mini' in names:
      group = 'mini' if '_mini' in names else 'probe'
      named = {t.name for t in tasks.TASKS.values() if t.group == group}
    for task in named:
      has = [task in known for known in PROTOCOLS.values()]
      expected = ['yes' if known else '–' for known in has]
      expected[has.index(True)] = 'default'
      assert cells == expected, task
    seen |= named
  assert seen == set(tasks.TASKS)
