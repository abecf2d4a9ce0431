"""Tests of the tables of step times and memory, and of the figures' inputs."""

import pathlib
import re
import subprocess
import sys

import pytest

from lra.board import catalogue, inputs
from lra.core import files
from lra.core.errors import UserError
from lra.nn import partials
from tools import layers, tables


@pytest.fixture
def two_models(monkeypatch):
  entries = [e for e in catalogue.read() if e.name in ('local', 'transformer')]
  monkeypatch.setattr(catalogue, 'read', lambda: entries)


def test_speed_has_a_row_per_model_and_a_ratio_per_length(
    two_models, monkeypatch, tmp_path):
  """Cells hold the medians of simulated step times.

  `local` takes 1 s and `transformer` 2 s at L = 16, and half of it at L = 32.
  """

  def training_step(name, batch, length, width):
    assert (batch, length) in ((2, 16), (1, 32)) and width == 8
    seconds = 16 / length * {'local': 1, 'transformer': 2}[name]
    warm_up_and_rounds = iter([20, seconds, 3 * seconds, seconds])
    return lambda: next(warm_up_and_rounds), length * 2**20

  monkeypatch.setattr(tables, '_training_step', training_step)
  measured = tables.measure_speed(width=8, rounds=3, shapes=((2, 16), (1, 32)))
  header, _, *rows = tables.speed_lines(measured)[-1].splitlines()
  cells = [[c.strip() for c in row.strip('|').split('|')] for row in rows]
  assert [c.strip() for c in header.strip('|').split('|')] == [
      'model', 'cost', '2 x 16', 'ratio', 'MiB', '1 x 32', 'ratio', 'MiB']
  assert [(c[0], *map(float, c[2:])) for c in cells] == [
      ('local', 1, 0.5, 16, 0.5, 0.5, 32), ('transformer', 2, 1, 16, 1, 1, 32)]
  files.write_json(tmp_path / 'speed.json', measured)
  found = inputs.speeds(tmp_path / 'speed.json')
  assert found.faster == {'local': 2, 'transformer': 1}
  assert set(found.memory.values()) == {32 * 2**20}
  assert found.what.startswith('1 x 32 tokens on cpu')


@pytest.mark.parametrize('value', [
    None, [], {}, {'shapes': []}, {'shapes': [[1, 2]], 'models': {}},
    {'shapes': [[1, 2]], 'device': 'cpu', 'models': {
        'transformer': {'seconds': [0], 'bytes': [1]}}}])
def test_no_speeds_are_said_to_be_none(tmp_path, value):
  path = tmp_path / 'speed.json'
  if value is not None:
    files.write_json(path, value)
  with pytest.raises(UserError, match='speed.json holds no speeds of models'):
    inputs.speeds(path)


@pytest.mark.full
def test_a_training_step_is_timed():
  step, size = tables._training_step('local', 2, 16, 8)
  assert step() > 0 and size > 0


def test_committed_tables_say_what_their_commands_would():
  """The headings of the committed tables are those of the current code."""
  folder = pathlib.Path(tables.__file__).parents[1] / 'results'
  memory, moved = ((folder / f'{name}.md').read_text('utf-8')
                   for name in ('memory', 'layers'))
  device, = re.findall('compiled for (.*?); B 1', memory)
  assert memory.startswith('\n'.join(tables.memory_heading(device)) + '\n| ')
  targets, = re.findall('--layers=([a-z0-9,]+)`', moved)
  assert moved.startswith(
      '\n'.join(layers.heading(targets.split(','))) + '\n| ')
  assert partials.MANY_LOGITS == 2**23 and '2^23' in memory


def test_less_than_the_floor_is_moved_on_tpus_alone():
  """Only compilers for TPUs may keep an array on chip between two parts."""
  lines = (pathlib.Path(tables.__file__).parents[1] / 'results/layers.md'
           ).read_text('utf-8').split('| :-- |\n')[1].splitlines()
  below = {line.split(' | ')[0].strip('| ') for line in lines
           if float(line.split(' | ')[6]) < 1}
  assert below == {'v5e', 'v6e'}


WITHOUT_TOOLS = """
import sys
sys.modules['tools'] = None
from tools import __main__ as command
from lra.core.errors import UserError
for name in sys.argv[1:]:
  try:
    command._module(name)
  except UserError as error:
    print(error)
"""


def test_an_installed_package_says_that_it_lacks_the_tools():
  names = ['layers', 'recurrent', 'launches', 'collectives', 'onchip']
  done = subprocess.run([sys.executable, '-c', WITHOUT_TOOLS, *names],
                        text=True, capture_output=True)
  assert done.returncode == 0, done.stderr
  assert [line.split(' needs tools')[0]
          for line in done.stdout.splitlines()] == [f'--{n}' for n in names]
