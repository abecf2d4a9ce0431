"""Tests which fields of a config count as changes of its protocol."""

import functools
import json

import pytest

from lra.configs import base
from lra.run import experiment, loader
from lra.schema import identity
from tests.helpers.paths import ROOT

RECORDS = sorted((ROOT / 'lra/results/runs').rglob('*.json'))
MODELS = sorted(p.stem for p in (ROOT / 'configs').glob('*.py')
                if p.stem not in ('__init__', 'base'))
CAUSAL = ('compressive', 'infini', 'lightning', 'ngram')  # do not pool by CLS


# config_flags loads a file with the deprecated load_module.
pytestmark = pytest.mark.filterwarnings('ignore:the load_module')


@pytest.fixture(autouse=True)
def at_home(monkeypatch):
  monkeypatch.chdir(ROOT)


def made(made_by, **changes):
  """Returns the changes of a config: {field: the protocol's value}."""
  return experiment.protocol_changes(_config(made_by, **changes), made_by)


def _config(made_by, **changes):
  return loader.made_by([f'--config={made_by}', *(
      f'--config.{name}={value}' for name, value in changes.items())
  ]).copy_and_resolve_references().to_dict()


@pytest.mark.parametrize('model', MODELS)
def test_a_model_as_it_is_changes_nothing_but_what_its_file_says(model):
  for task in ('listops', 'text_mini', 'retrieval_rfc,protocol=nystrom'):
    expected = {}
    if model in CAUSAL and task == 'listops':
      expected = {'encoder.pooling': 'cls'}
    assert made(f'configs/{model}.py:{task}') == expected


SIMPLETRON = 'configs/simpletron.py:listops_mini'


@pytest.mark.parametrize('field, value, said', [
    ('train.steps', 300, 4000), ('train.learning_rate', 0.1, 0.05),
    ('train.batch_size', 64, 32), ('train.eval_every', 100, 500),
    ('train.select', 'last', 'best'), ('seq_len', 16, 0),
    ('encoder.num_layers', 3, 2), ('encoder.pooling', 'mean', 'cls'),
    ('encoder.head', 'nli', 'concat'), ('encoder.dropout', 0.1, 0.0),
    ('mask_padding', False, True), ('model.num_heads', 2, 4),
    ('model.qkv_width', 32, 64), ('optim.name', 'lion', 'adamw'),
    ('objective', 'x', 'classification'),
    ('optim.groups', (('.*', None),), [])])
def test_each_setting_counts(field, value, said):
  assert made(SIMPLETRON, **{field: value}) == {field: said}


@pytest.mark.parametrize('field, value', [
    ('seed', 3), ('data_dir', '/data'), ('dtype', 'bfloat16'),
    ('train.microbatch_size', 8), ('train.eval_batch_size', 8),
    ('train.log_every', 1), ('train.checkpoint_minutes', 1.0),
    ('encoder.remat', True), ('model.kernel', 'xla'), ('train.steps', 4000)])
def test_a_machine_a_repetition_and_the_same_value_do_not(field, value):
  assert made(SIMPLETRON, **{field: value}) == {}


def test_what_follows_a_changed_field_is_changed_too():
  assert made(SIMPLETRON, **{'encoder.width': 16}) == {
      'encoder.width': 64, 'encoder.embedding_std': 0.125,
      'model.qkv_width': 64}
  # A number of features that follows `seq_len` is changed too.
  assert made('configs/performer.py:listops_mini', seq_len=16) == {
      'seq_len': 0, 'model.num_features': 32}


def test_a_file_that_sets_what_the_protocol_says_changes_it(tmp_path):
  """If a config file sets a field of the protocol, that counts as a change."""
  path = tmp_path / 'mine.py'
  path.write_text(
      'from lra.configs import base\n\n\n'
      "def get_config(arg=''):\n"
      "  config = base.get_config(arg, 'performer')\n"
      '  config.train.steps, config.model.num_features = 300, 8\n'
      '  return config\n')
  assert made(f'{path}:listops_mini') == {'train.steps': 4000}
  assert made(f'{path}:listops_mini', **{'model.num_features': 4}) == {
      'train.steps': 4000, 'model.num_features': 8}


def test_committed_records_say_what_they_change():
  settings_of = functools.cache(base.settings)
  for path in RECORDS:
    record = json.loads(path.read_text(encoding='utf-8'))
    settings = settings_of(record['task'], record['protocol'])
    changed = identity.changes(record['config'], settings)
    told = {name: value for name, value in (
        record.get('changes') or {}).items() if name in settings}
    assert told == changed, (
        f'{path}: the protocol has changed since this run was made: add the '
        'differences from it to the `changes` of the record, or make the run '
        'again.')
