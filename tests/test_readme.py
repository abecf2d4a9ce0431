"""The README's example of a new model is complete."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

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
  assert f'| {name}' in (folder / 'leaderboard.md').read_text()
  record, = folder.glob(f'lra/results/runs/listops_mini/{name}-*.json')
  kept = json.loads(record.read_text())
  # Its files are not in the commit yet, and the record says so.
  assert kept['git_commit'] and kept['git_dirty'] is True
  assert kept['model_sha256'] == made_with
  return '\n'.join(
      line for line in done.stderr.splitlines() if 'lra/models/' in line)


def test_new_models_of_the_readme_train(mini_data, tmp_path):
  for name in ('lra', 'configs', 'kernels', 'data_prep'):
    shutil.copytree(ROOT / name, tmp_path / name)
  shutil.copy(ROOT / 'run_lra.py', tmp_path)
  (tmp_path / '.gitignore').write_text('__pycache__/\n')
  for command in ('init -q', 'add -A', 'commit -qm all'):
    subprocess.run(
        ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', *command.split()),
        cwd=tmp_path, check=True)
  readme = (ROOT / 'README.md').read_text()
  _, mean, config, aft = re.findall(r'```python\n(.*?)```', readme, re.S)
  (tmp_path / 'lra/models/mean.py').write_text(mean)
  (tmp_path / 'configs/mean.py').write_text(config)
  (tmp_path / 'lra/models/aft.py').write_text(aft)
  (tmp_path / 'configs/aft.py').write_text(
      config.replace("'mean'", "'aft'").replace(
          '  del config.model.num_heads  # this mixer has no heads\n', ''))
  for name, text in (('mean', mean), ('aft', aft)):
    assert not _train(tmp_path, mini_data, name, _hash(text))
  # An edited file is not the one that was trained, nor one without its family
  # in order.
  (tmp_path / 'lra/models/mean.py').write_text(
      mean.replace("FAMILY = 'linear'\n", ''))
  said = _train(tmp_path, mini_data, 'mean', _hash(mean))
  assert 'the constant FAMILY, ' in said and 'Until then --list leaves' in said
  assert 'lra/models/mean.py is another file than runs/' in said
