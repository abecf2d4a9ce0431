"""Tests that the command to repeat a recorded run makes the run's config."""

import shlex

import pytest

from lra.cli import repeat
from lra.core import paths
from lra.run import loader
from lra.schema import identity, result, seeds
from tests.helpers.paths import ROOT

PATHS = sorted((paths.PACKAGED / 'runs').rglob('*.json'))

FULL = next(path for path in PATHS if path.parent.name == 'listops'
            and path.name.startswith('simpletron-'))


def config_of(command):
  """Returns the config that a command line makes, as plain values."""
  python, program, config, *flags = shlex.split(command)
  assert (python, program) == ('python', 'run_lra.py')
  name, path = config.split('=', 1)
  assert name == '--config' and path.startswith('configs/')
  made = loader.made_by([f'--config={ROOT / path}', *flags])
  return made.copy_and_resolve_references().to_dict()


@pytest.mark.full
def test_committed_records():
  for path in PATHS:
    run = result.read(path)
    config = config_of(repeat.command(run))
    # A run itself hashes the checkpoint that it begins with.
    config['init_source'] = run.config.get('init_source', '')
    assert not identity.differences(config, run.config), path
    assert identity.config_hash(config) == identity.config_hash(run.config)
    assert run.record_path.name == path.name


def changed(**fields):
  """Returns a record whose config differs from its file's in `fields`."""
  run = result.read(FULL)
  config = config_of(shlex.join(shlex.split(repeat.command(run))[:3]))
  for name, value in fields.items():
    *groups, last = name.split('__')
    inner = config
    for group in groups:
      inner = inner[group]
    inner[last] = value
  return run.model_copy(update={
      'config': result._plain(config), 'seed': config['seed']})


@pytest.mark.parametrize('fields', [
    {'seed': 7}, {'train__lengths': (8, 16)}, {'encoder__width': 128},
    {'encoder__width': 128, 'model__qkv_width': 128},
    {'encoder__width': 128, 'encoder__embedding_std': 0.5},
    {'optim__groups': (('encoder/.*', None), ('.*', {'learning_rate': 0.01}))},
    {'encoder__remat': True, 'train__learning_rate': 1e-5, 'dtype': 'float32'},
])
def test_changed_fields(fields):
  run = changed(**fields)
  config = config_of(repeat.command(run))
  assert not identity.differences(config, run.config)


def test_a_field_that_the_run_did_not_know_is_as_it_was_then():
  run = changed()
  assert config_of(repeat.command(run))['train']['lengths']
  del run.config['train']['lengths']
  config = config_of(repeat.command(run))
  assert not config['train']['lengths']
  assert not identity.differences(config, run.config)


@pytest.mark.parametrize('numbers, text', [
    ([0], '0'), ([0, 1], '0-1'), ([0, 2, 3, 4], '0,2-4'),
    (list(range(1500)), '0-999,1000-1499')])
def test_seeds_as_text(numbers, text):
  assert seeds.text(numbers) == text and seeds.parse(text) == numbers


def test_an_installed_program_has_another_name(monkeypatch):
  run = changed(seed=3)
  monkeypatch.setattr(paths, 'installed', lambda: True)
  assert shlex.split(repeat.command(run)) == [
      'lra', '--config=simpletron:listops,protocol=nystrom', '--config.seed=3']
  assert paths.config_file('simpletron').samefile(
      paths.ROOT / 'configs' / 'simpletron.py')


def test_a_run_from_a_folder_has_no_command_and_one_from_a_config_has():
  run = changed(init_source='0123abcd')
  assert 'No command' in repeat.command(run) and '0123abcd' in (
      repeat.command(run))
  run = changed(init_source='0123abcd', init_from='configs/fnet.py:listops')
  flags = shlex.split(repeat.command(run))
  assert '--config.init_from=configs/fnet.py:listops' in flags
  assert not any('init_source' in flag for flag in flags)


@pytest.mark.parametrize('fields, update, words', [
    ({}, {'model': 'nobody'}, 'nobody.py'),
    ({}, {'protocol': 'bogus'}, 'bogus'),
    ({'encoder__gone': 1}, {}, 'no field encoder.gone'),
    ({'encoder__pooling': '--x\ny'}, {}, 'encoder.pooling'),
    ({'encoder__pooling': 'x  y'}, {}, 'encoder.pooling'),
    ({'train__steps': 'many'}, {}, 'not a whole number')])
def test_what_cannot_be_made_again_is_a_sentence(fields, update, words):
  said = repeat.command(changed(**fields).model_copy(update=update))
  assert said.startswith('No command makes it again here: ') and words in said
  assert str(ROOT) not in said


def test_only_what_the_file_makes_otherwise_is_said():
  run = changed(seed=3, encoder__dropout=0.25, data_dir='/home/somebody')
  flags = shlex.split(repeat.command(run))
  assert flags[-2:] == ['--config.encoder.dropout=0.25', '--config.seed=3']
  assert len(flags) == 5
  assert shlex.split(repeat.command(run, [0, 1, 2, 5])) == [
      *flags[:-1], '--seeds=0-2,5']
  assert repeat.command(run, [3]) == repeat.command(run)
