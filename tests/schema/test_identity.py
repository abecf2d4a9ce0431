"""Tests that a run keeps its identity when the code gains fields."""

import functools
import importlib
import json

import ml_collections
import pytest

from lra.schema import fields, identity
from tests.helpers.paths import ROOT

RECORDS = sorted((ROOT / 'lra/results/runs').rglob('*.json'))
EXTRA = {'train.later': 0.5, 'later.group': ()}


def _config(arg='listops_mini', model='simpletron', **changes):
  c = importlib.import_module(f'lra.configs.{model}').get_config(arg)
  for name, value in changes.items():
    group, _, key = name.rpartition('.')
    with c.unlocked():
      if group and group not in c:
        c[group] = ml_collections.ConfigDict()
      (c[group] if group else c)[key] = value
  return c.copy_and_resolve_references().to_dict()


def _record():
  """Returns the config of an early SimpleTRON record, without later fields."""
  return json.loads(
      (ROOT / 'tests/fixtures/early_config.json').read_text('utf-8'))


def test_a_record_is_called_by_its_hash():
  for path in RECORDS:
    record = json.loads(path.read_text(encoding='utf-8'))
    config, seed = identity.run_name(record['config']).rsplit('-', 1)
    parts = path.stem.removeprefix(f'{record["model"]}-').split('-')
    # A record whose settings were searched has the hash of the search, too.
    assert (parts[0], parts[-1]) == (config, seed)
    assert len(parts) == 2 + bool(record.get('search'))


def test_a_record_without_the_later_fields_is_a_run_made_now():
  now, then = _config(), _record()
  assert set(identity.flatten(now)) > set(identity.flatten(then))
  assert identity.identity(now) == identity.identity(then)
  assert identity.differences(now, then) == []


def test_a_new_field_changes_nothing_until_it_is_used(monkeypatch):
  before = _config()
  for name, value in EXTRA.items():
    monkeypatch.setitem(fields.LATER, name, value)
  after = _config(**EXTRA)
  assert set(EXTRA) <= set(identity.flatten(after))
  for theirs in (before, _record()):
    assert identity.run_folder(after) == identity.run_folder(theirs)
    assert identity.differences(after, theirs) == []
    assert identity.differences(theirs, after) == []
  used = _config(**{'train.later': 0.25, 'later.group': (('.*', None),)})
  assert identity.config_hash(used) != identity.config_hash(before)
  assert identity.differences(used, before) == ['later.group', 'train.later']


def test_a_new_argument_of_a_model_changes_nothing_until_it_is_used(
    monkeypatch):
  monkeypatch.setitem(fields.ADDED_TO_MODELS, 'simpletron', {
      **fields.ADDED_TO_MODELS['simpletron'], 'later': 1})
  old = _record()
  for value, differences in ((1, []), (2, ['model.later'])):
    new = _config(**{'model.later': value})
    assert identity.differences(new, old) == differences
    same = identity.config_hash(new) == identity.config_hash(old)
    assert same == (not differences)
  other = _config(model='transformer', **{'model.later': 1})
  assert identity.differences(
      other, _config(model='transformer')) == ['model.later']


def _another(value):
  """Returns another value of the same type."""
  if isinstance(value, bool):
    return not value
  if isinstance(value, str):
    return f'{value}x'
  if isinstance(value, tuple):
    return (*value, ('.*', None))
  return value + 1


@pytest.mark.parametrize('name', sorted(identity.flatten(_config())))
def test_each_field_in_turn_changes_the_hash(name):
  group, _, key = name.rpartition('.')
  config = _config()
  changed = config[group] if group else config
  changed[key] = _another(changed[key])
  same = identity.config_hash(config) == identity.config_hash(_config())
  machine = {name, group} & set(identity.MACHINE_FIELDS)
  assert same == bool(machine)
  # If a size is 0, the identity holds the size for a CPU in its place.
  expected = [] if machine - {'seed'} else [name.replace('cpu_', '')]
  if name == 'model.name':  # the identity leaves these out
    expected += ['model.output_projection', 'model.qkv_bias']
  assert identity.differences(config, _config()) == expected


def test_a_size_left_to_the_machine_is_the_experiment_of_before():
  """Earlier configs had one size for every machine, which was that of a CPU."""
  now, before = _config(), _config()
  for name in ('microbatch_size', 'eval_batch_size'):
    now['train'][name] = 0
    now['train'][f'cpu_{name}'] = 16
    before['train'][name] = 16
    del before['train'][f'cpu_{name}']
  assert identity.config_hash(now) == identity.config_hash(before)
  assert identity.differences(now, before) == []
  now['train']['microbatch_size'] = 4  # another run of the same experiment
  assert identity.config_hash(now) != identity.config_hash(before)
  assert identity.repetition(now) == identity.repetition(before)


def test_a_seed_is_another_run_of_the_same_settings():
  one, two = _config(), _config(seed=1)
  assert identity.config_hash(one) == identity.config_hash(two)
  assert identity.run_name(one) != identity.run_name(two)
  assert identity.run_name(two).endswith('-s1')


def test_whoever_declares_a_field_says_what_was_done_before():
  known = set()
  for path in RECORDS:
    flat = identity.flatten(json.loads(path.read_text())['config'])
    known |= {n for n in flat if not n.startswith('model.')}
  missing = [
      name for name in fields.FIELDS if name not in fields.LATER
      and name not in known and not name.startswith('model.')]
  assert not missing, (
      f'{missing[0]} is newer than the records: give it the default in '
      'lra/schema/fields.py that describes the earlier behaviour, or all old '
      'records lose their rows.')
  assert known <= set(fields.FIELDS), (
      'a field of the records is not in lra/schema/fields.py: declare it.')


def test_whoever_adds_an_argument_to_a_model_says_what_was_done_before():
  arguments = functools.cache(
      lambda task, model: set(_config(task, model)['model']))
  for path in RECORDS:
    record = json.loads(path.read_text(encoding='utf-8'))
    model = record['model']
    now = arguments(record['task'], model)
    added = now - set(record['config']['model']) - set(
        fields.ADDED_TO_MODELS.get(model, {}))
    assert not added, (
        f'{path}: config.model.{min(added)} of {model} is newer than its '
        'records: add it to ADDED_TO_MODELS in lra/schema/fields.py with the '
        'value that describes the earlier behaviour.')


def test_fields_are_declared_soundly():
  fields.Config.model_validate(_config(model='transformer'))
  for name, info in fields.FIELDS.items():
    assert info.description.endswith('.'), name
    assert not fields.choices(info) or info.default in fields.choices(info)


@pytest.mark.parametrize('name, values', [
    ('train.lengths', [(16, 24), (24, 16), (24, 16, 24), [16, 24, 24]]),
    ('train.lengths', [(16,), (16, 16)]),
    ('train.learning_rate', [0.0, -0.0]),
    ('optim.groups', [(('.*', {'learning_rate': rate}),)
                      for rate in (0.0, -0.0)]),
])
def test_two_ways_to_write_one_thing_are_one_run(name, values):
  configs = [_config(**{name: value}) for value in values]
  assert len(set(map(identity.config_hash, configs))) == 1
  assert identity.config_hash(configs[0]) != identity.config_hash(_config())
  assert not identity.differences(configs[0], configs[-1])
