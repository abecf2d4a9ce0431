"""Tests files of runs: their form, errors, parts, and those of the repository.
"""

import math

import pytest

from lra import models
from lra.board import inputs
from lra.core.errors import UserError
from lra.many import runs
from lra.schema import runs_file
from tests.helpers.paths import ROOT

_FILE = '''# Two models.
models = ["simpletron", "fnet"]
set.train.steps = 7

[[runs]]
tasks = ["listops_mini", "parity"]
seeds = "0,2-3"

[[runs]]
models = ["transformer"]
tasks = ["text"]
protocol = "lra"
set.train = {steps = 9, lengths = [500, 1000]}
set.optim.groups = "((r'.*/x',None),('.*',{}))"
grid.encoder.norm = ["layer", "batch"]
grid.train.learning_rate = [0.1, 1e-5]
'''


@pytest.fixture
def file(tmp_path, monkeypatch):
  """Returns a function that writes a file of runs and returns its path."""
  monkeypatch.chdir(ROOT)

  def write(text):
    (tmp_path / 'a.toml').write_text(text)
    return str(tmp_path / 'a.toml')

  return write


def test_an_entry_has_every_model_task_value_and_seed(file):
  found = runs.read(file(_FILE))
  assert [(run.config, run.seed) for run in found[:12]] == [
      (f'configs/{model}.py:{task}', seed)
      for task in ('listops_mini', 'parity') for model in ('simpletron', 'fnet')
      for seed in '023']
  assert {run.flags[1] for run in found[:12]} == {'--config.train.steps=7'}
  assert {run.entry for run in found[:12]} == {1}
  assert [run.setting for run in found[12:]] == [
      ('--config=configs/transformer.py:text,protocol=lra',
       '--config.train.steps=9', '--config.train.lengths=(500, 1000)',
       "--config.optim.groups=((r'.*/x',None),('.*',{}))",
       f'--config.encoder.norm={norm}', f'--config.train.learning_rate={rate}')
      for norm in ('layer', 'batch') for rate in (0.1, 1e-5)]
  assert len({run.folder for run in found}) == 16
  assert found[0].folder.parts[:3] == ('runs', 'listops_mini', 'simpletron')
  assert found[0].folder.name[:8] == found[1].folder.name[:8]
  assert found[12].title.startswith('configs/transformer.py:text,protocol=lra ')


def test_a_run_of_a_file_is_that_of_its_flags(file):
  run = runs.read(file(_FILE))[-1]
  one, = runs.experiments([run.flags])
  assert one.folder == run.folder and one.config.train.lengths == (500, 1000)
  assert one.changes == {**one.changes, 'train.steps': 20000,
                         'optim.groups': []}


def test_values_may_name_the_task_and_options_of_the_config(file):
  found = runs.read(file('''[[runs]]
      models = ["simpletron"]
      tasks = ["text_mini", "listops_mini"]
      pretrain = "masked"
      set.data_dir = "/data/{task}"'''))
  assert [run.flags[:2] for run in found] == [
      (f'--config=configs/simpletron.py:{task},pretrain=masked',
       f'--config.data_dir=/data/{task}') for task in (
           'text_mini', 'listops_mini')]


def test_other_models_may_take_the_place_of_those_of_the_file(file):
  found = runs.read(file(_FILE), ['gla'])
  assert {run.config.partition(':')[0] for run in found} == {'configs/gla.py'}
  assert len(found) == 10


_ENTRY = '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'


@pytest.mark.parametrize('text, word', [
    ('models = ', r'a.toml .*\(Invalid value'),
    ('[[runs]]\nmodelz = []', "runs 1: there is no 'modelz': did you mean mod"),
    ('sets = 1', "a.toml: there is no 'sets': did you mean set"),
    ('[study]\ntitel = ""', "study: there is no 'titel': did you mean title"),
    ('[[runs]]\nmodels = "gla"', "'runs.0.models' is 'gla'"),
    ('[[runs]]\nseeds = 3', "'runs.0.seeds' is 3"),
    (_ENTRY + 'seeds = "x"', 'seeds=x'),
    (_ENTRY + 'seeds = "1,0-2"', 'seed twice'),
    (_ENTRY + 'seeds = "0-99999999999"', 'at most 1000'),
    ('[[runs]]\ntasks = ["text"]', 'runs 1 has no models: write models ='),
    ('[[runs]]\nmodels = ["gla"]', 'runs 1 has no tasks: write tasks ='),
    ('seeds = "0"', 'a.toml has no runs: write'),
    ('', 'a.toml has no runs'),
    (_ENTRY + 'set.train.stepz = 7', 'runs 1, simpletron on .*stepz'),
    (_ENTRY + 'set.train.steps = "x"', "runs 1, .*train.steps"),
    (_ENTRY + 'set.train.b2 = 2', 'config.train.b2=2'),
    (_ENTRY + 'set.seed = 1', 'runs 1: it sets seed: write seeds = "0-2"'),
    (_ENTRY + 'grid.train.steps = 7', 'train.steps should be a list'),
    (_ENTRY + 'grid.train.steps = []', 'train.steps should be a list'),
    (_ENTRY + 'grid.train.steps = [1]\nset.train.steps = 1',
     'train.steps twice'),
    (_ENTRY + 'set."train.steps" = 1\nset.train.steps = 2',
     'train.steps twice'),
    (_ENTRY + 'search."train.steps" = [1]\nsearch.train.steps = [2]',
     'train.steps twice'),
    (_ENTRY + 'grid.train.steps = [1]\nsearch.train.seed = [1]', 'leave out'),
    (_ENTRY + 'search.train.steps = [1]\nset.train.include_val = true',
     'validation split'),
    (_ENTRY + 'search.data_dir = ["a", "b"]', 'runs 1: data_dir'),
    (_ENTRY + 'search.encoder.remat = [true, false]', 'encoder.remat'),
    (_ENTRY + f'set.{".".join(["a"] * 5000)} = 1', 'nested'),
    (_ENTRY + 'set.data_dir = 07:32:00', 'data_dir=07:32:00'),
    (_ENTRY + 'set.tokenizer = [1]', 'tokenizer='),
    (_ENTRY + 'set.data_dir = "a\\u0000b"', 'data_dir='),
    (_ENTRY + f'grid.train.steps = {list(range(1, 10_012))}',
     '10,011 runs .*are too many'),
    (_ENTRY + 'grid.train.steps = [8, 8]', 'is also in runs 1: remove one'),
    (_ENTRY * 2, 'runs 2: .*is also in runs 1'),
    (_ENTRY + _ENTRY + 'set.data_dir = "elsewhere"', 'also in runs 1'),
    (_ENTRY + 'arms = {a = "gla"}', "runs 1: .*'arms'"),
    ('[[runs]]\nmodels = ["nobody"]\ntasks = ["text"]', 'nobody on text: .*no'),
    ('[[runs]]\nmodels = ["gla"]\ntasks = ["txt"]', 'runs 1, gla on txt: '),
    (_ENTRY + 'protocol = "lr"', "'lr': did you mean lra"),
    ('#' * 2**23, '4,194,304 bytes')], ids=range(39))
def test_a_fault_is_named_with_its_place(file, text, word):
  with pytest.raises(UserError, match=word):
    runs.read(file(text))


@pytest.mark.parametrize('name, word', [
    ('configs/runs/mni.toml', 'did you mean configs/runs/mini.toml'),
    ('sate', 'did you mean state'), ('./configs', 'Is a directory'),
    ('/dev/zero', 'regular')])
def test_a_file_that_cannot_be_read_is_named(name, word, monkeypatch):
  monkeypatch.chdir(ROOT)
  with pytest.raises(UserError, match=word):
    runs.read(name)


def test_parts_are_all_runs_once(file):
  whole = runs.read(file(
      _ENTRY + 'seeds = "0-1"\ngrid.train.steps = [10, 20, 30, 40]\n'
      + _ENTRY + 'seeds = "2-3"\nsearch.train.learning_rate = [0.1, 0.2]'))
  parts = [runs.part(whole, f'{i}/3') for i in (1, 2, 3)]
  assert [len(part) for part in parts] == [4, 6, 2]  # a search is not divided
  assert {run for part in parts for run in part} == {*whole}
  for text in ('0/3', '4/3', '1', '1/0', 'a/b'):
    with pytest.raises(UserError, match=f'--part={text} is not possible'):
      runs.part(whole, text)


def test_settings_of_one_config_are_compared(file):
  units = runs.units(runs.read(file(
      _ENTRY + _ENTRY + 'seeds = "1"\n[[runs]]\nmodels = ["simpletron"]\n'
      'tasks = ["listops_mini", "parity"]\nset.train.steps = 7\nseeds = "0-1"\n'
      + _ENTRY + 'search.train.learning_rate = [0.1, 0.2]')))
  assert [[len(setting) for setting in unit.settings] for unit in units] == [
      [2, 2], [2], [1, 1]]
  assert [unit.searched for unit in units] == [
      (), (), ('train.learning_rate',)]


def test_files_of_the_repository(monkeypatch):
  """The first and last task of each entry make a config with every model."""
  monkeypatch.chdir(ROOT)
  everywhere = {'mini', 'nystrom', 'probes'}
  for name in runs_file.names():
    file = runs_file.read(runs_file.path_of(name))
    if name in everywhere:
      assert {m for e in file.runs for m in e.models} == {*models.names()}
    for number, entry in enumerate(file.runs, 1):
      searched = math.prod(map(len, entry.lists.values()))
      if name.startswith('search_'):
        assert searched > 2 and entry.seeds == '0-2'
      task = entry.tasks[number % len(entry.tasks)]
      arm, model = entry.pairs[number % len(entry.pairs)]
      assert runs._runs(entry, number, task, model, arm)


def test_the_runs_of_the_arena_are_its_six_tasks_under_one_protocol():
  file = runs_file.read(ROOT / 'configs/runs/lra.toml')
  for entry in file.runs:
    assert {*entry.tasks} == set(inputs.SCORES) and entry.protocol == 'lra'
