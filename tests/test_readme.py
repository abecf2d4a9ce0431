"""The README's example of a new model is complete."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def test_new_model_of_the_readme_trains(mini_data, tmp_path):
  for name in ('lra', 'configs', 'kernels', 'data_prep'):
    shutil.copytree(ROOT / name, tmp_path / name)
  shutil.copy(ROOT / 'run_lra.py', tmp_path)
  readme = (ROOT / 'README.md').read_text()
  mixer, config = re.findall(r'```python\n(.*?)```', readme, re.S)
  (tmp_path / 'lra/models/mean.py').write_text(mixer)
  (tmp_path / 'configs/mean.py').write_text(config)
  done = subprocess.run(
      [sys.executable, 'run_lra.py', '--config=configs/mean.py:listops_mini',
       f'--config.data_dir={mini_data}', '--config.train.steps=5'],
      cwd=tmp_path, text=True, capture_output=True, check=False,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(tmp_path)})
  assert done.returncode == 0, done.stderr
  assert 'first operator' in done.stdout
  assert '| mean' in (tmp_path / 'leaderboard.md').read_text()
