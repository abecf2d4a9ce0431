"""Who may import whom, held by reading the imports."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
OURS = ('lra', 'configs', 'kernels', 'data_prep')
# A file's first match says what of ours, or of jax, it may import.
ALLOWED = {
    'configs/': ('configs',),
    'kernels/': ('kernels', 'jax'),
    'data_prep/': ('data_prep', 'lra.tasks', 'lra.errors'),
    'lra/models/': ('lra.models', 'lra.errors', 'kernels', 'jax'),
    'lra/tasks.py': ('lra.errors',),
    'lra/errors.py': (),
    'lra/leaderboard.py': ('lra',),
    'lra/catalogue.py': ('lra',),
    'lra/schema.py': ('lra',),
    'lra/': ('lra', 'data_prep', 'kernels', 'jax'),
    'run_lra.py': ('lra',),
}


def _imports(path):
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}: relative import'
      yield from (f'{node.module}.{a.name}' for a in node.names)


def _files():
  return [p.relative_to(ROOT).as_posix() for package in OURS
          for p in sorted((ROOT / package).rglob('*.py'))] + ['run_lra.py']


@pytest.mark.parametrize('path', _files())
def test_dependencies_point_one_way(path):
  allowed = next(v for k, v in ALLOWED.items() if path.startswith(k))
  for name in _imports(ROOT / path):
    top = name.split('.')[0]
    if top in (*OURS, 'jax', 'flax') and name != 'lra.tasks':
      known = {'flax': 'jax'}.get(top, top)
      assert any(f'{name}.'.startswith(f'{a}.') or known == a
                 for a in allowed), f'{path} imports {name}'
    assert top != 'tensorflow', f'{path} imports {name}'
    if top == 'orbax':
      assert path == 'lra/checkpoint.py'
