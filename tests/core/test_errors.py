"""Tests the names that errors suggest."""

import pytest

from lra import models
from lra.configs import base
from lra.core import tasks
from lra.core.errors import UserError, choose
from lra.run import loader
from lra.schema import fields
from lra.schema.fields import FIELDS
from lra.schema.synonyms import FIELD_OF


@pytest.mark.parametrize('say, meant', [
    (lambda: tasks.get('listops_min'), 'listops_mini'),
    (lambda: base.get_config('lisops'), 'listops'),
    (lambda: base.get_config('listops,protocol=nystorm'), 'nystrom'),
    (lambda: base.settings('listops', 'lrb'), 'lra'),
    (lambda: models.mixer('transfomer'), 'transformer'),
    (lambda: loader.made_by(['--config=configs/simpletorn.py:listops']),
     'simpletron.py'),
    (lambda: loader.made_by(['--config=configs/local.py:listopps']),
     'listops'),
])
def test_a_wrong_name_has_the_likeliest_one_beside_it(say, meant):
  with pytest.raises(UserError, match=f'did you mean [a-z/]*{meant}[?,]'):
    say()


@pytest.mark.parametrize('name', [
    name for name, info in FIELDS.items() if fields.choices(info)])
def test_a_wrong_choice_names_all_choices(name):
  choices = list(map(str, fields.choices(FIELDS[name])))
  for choice in choices:
    said = choose(choice.upper() + 'x', choices)
    assert all(other in said for other in choices)
    assert len(choice) < 3 or f'did you mean {choice}' in said


def test_a_name_like_no_other_has_all_names_beside_it():
  with pytest.raises(UserError, match='one of .*listops.*text'):
    tasks.get('0000')


@pytest.mark.parametrize('name, meant', [
    ('num_blocks', 'encoder.num_layers'), ('lr', 'train.learning_rate'),
    ('d_model', 'encoder.width'), ('encoder.hidden_size', 'encoder.width'),
    ('dropout', 'encoder.dropout'), ('batch_size', 'train.batch_size'),
    ('mlp_dim', 'encoder.mlp_width'), ('model.n_heads', 'model.num_heads'),
    ('train.optimizer', 'optim.name'), ('grad_clip', 'optim.clip_norm')])
def test_a_name_of_another_program_has_the_field_beside_it(name, meant):
  with pytest.raises(UserError, match=rf'did you mean config\.{meant}\?'):
    loader.made_by(['--config=configs/transformer.py:listops_mini',
                    f'--config.{name}=1'])


def test_each_synonym_is_of_a_field_and_is_no_field():
  last = {name.rpartition('.')[2] for name in FIELDS}
  assert not last & FIELD_OF.keys()
  of_models = {'model.attention_dropout'}
  assert set(FIELD_OF.values()) <= FIELDS.keys() | of_models


def test_an_argument_of_the_model_comes_before_a_synonym():
  assert loader.likeliest('depth', ['encoder.num_layers']) == (
      'encoder.num_layers')
  assert loader.likeliest('depth', ['encoder.num_layers', 'model.depth']) == (
      'model.depth')
