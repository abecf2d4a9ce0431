"""Who may import whom, held by reading the imports."""

import ast
import pathlib

import pytest

from lra import models

ROOT = pathlib.Path(__file__).parent.parent
OURS = ('lra', 'configs', 'kernels', 'data_prep')
ORBAX = ('lra.training.checkpoint', 'lra.training.checkpoint_io')
# Rooms and modules that every other may use.
GROUND = ('lra.tasks', 'lra.errors', 'lra.files', 'lra.bits', 'lra.paths',
          'lra.formats', 'lra.system', 'lra.config')
# Rooms from the ground up: a room may import those named here and itself.
ROOMS = {
    'lra.system': ('lra.errors', 'jax'),
    'lra.config': ('lra.errors',),
    'kernels': ('jax',),
    'kernels.tools': ('kernels', 'jax'),
    'data_prep': GROUND,
    'lra.nn': ('kernels', 'jax', *GROUND),
    'lra.models': ('lra.nn', 'kernels', 'jax', *GROUND),
    # Configs take the defaults of mixers. They import no model until one is
    # named.
    'configs': ('lra.models', *GROUND),
    'lra.data': ('data_prep', *GROUND),
    'lra.objectives': ('lra.nn', 'lra.data', 'data_prep', 'jax', *GROUND),
    'lra.experiment': ('lra.objectives', 'lra.models', 'lra.nn', 'configs',
                       'jax', *GROUND),
    # Neither records nor the page import jax.
    'lra.records': ('configs', 'lra.data', 'data_prep', *GROUND),
    'lra.report': ('lra.records', 'lra.models', *GROUND),
    'lra.training': ('lra.records', 'lra.experiment', 'lra.objectives',
                     'lra.models', 'lra.nn', 'lra.data', 'kernels', 'jax',
                     *GROUND),
    'lra.sweeps': ('lra.training', 'lra.report', 'lra.records',
                   'lra.experiment', 'data_prep', *GROUND),
    'lra.costs': ('lra.training', 'lra.experiment', 'lra.report', 'lra.records',
                  'lra.models', 'lra.nn', 'lra.data', 'configs', 'kernels',
                  'kernels.tools', 'jax', *GROUND),
    'lra.cli': ('lra.sweeps', 'lra.training', 'lra.costs', 'lra.report',
                'lra.records', 'lra.experiment', 'lra.objectives', 'lra.models',
                'lra.api', 'configs', 'data_prep', 'jax', *GROUND),
}



def _files():
  return [p.relative_to(ROOT) for package in OURS
          for p in sorted((ROOT / package).rglob('*.py'))] + [
              pathlib.Path('run_lra.py')]


def _module(path):
  """`lra/nn/heads.py` -> `lra.nn.heads`; a package is its folder."""
  parts = path.with_suffix('').parts
  return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


MODULES = {_module(p) for p in _files()}


def _imports(path):
  """Modules of ours that a file imports, and `jax` where it does."""
  for node in ast.walk(ast.parse((ROOT / path).read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}: relative import'
      names = [f'{node.module}.{a.name}' for a in node.names]
    else:
      continue
    for name in names:
      while name.split('.')[0] in OURS and name not in MODULES and '.' in name:
        name = name.rpartition('.')[0]  # a name inside a module
      yield {'flax': 'jax', 'optax': 'jax', 'orbax': 'orbax'}.get(
          name.split('.')[0], name)


def _room(module):
  """The innermost room of a module; a file in the hall is its own."""
  return max((r for r in ROOMS if f'{module}.'.startswith(f'{r}.')), key=len,
             default=module)


@pytest.mark.parametrize('path', _files(), ids=str)
def test_imports_point_one_way(path):
  module = _module(path)
  room = _room(module)
  # What is outside of the rooms, and a room's command, may import anything.
  allowed = ((*GROUND, 'jax') if module in GROUND else
             (*ROOMS[room], room) if room in ROOMS and path.stem != '__main__'
             else None)
  for name in _imports(path):
    top = name.split('.')[0]
    assert top != 'tensorflow', f'{path} imports {name}'
    if top == 'orbax':
      assert module in ORBAX, f'{path} imports {name}'
    if top in (*OURS, 'jax'):
      assert allowed is None or (
          top if top == 'jax' else _room(name)) in allowed, (
              f'{path} imports {name}, which {room} may not')


def test_the_rooms_have_no_circle():
  order = list(ROOMS)
  for place, (room, allowed) in enumerate(ROOMS.items()):
    for other in allowed:
      if other in ROOMS:
        assert order.index(other) < place, f'{room} imports {other}'


def test_models_hold_models_only():
  for path in sorted((ROOT / 'lra' / 'models').glob('*.py')):
    if path.name != '__init__.py':
      names = {node.name for node in ast.parse(path.read_text()).body
               if isinstance(node, ast.ClassDef)}
      wanted = models.SHARED.get(path.stem, {path.stem: 'Mixer'}).values()
      assert set(wanted) <= names, (
          f'{path.name} is not a model: move it to lra/nn')
