"""Tests that each check of a config fails with a sentence that names the field.
"""

import dataclasses
import importlib
import math
import re

import flax.linen as nn
import jax.numpy as jnp
import pytest

from lra import models
from lra.configs import protocols
from lra.core import files
from lra.core.errors import UserError
from lra.run import check, experiment, loader, restore
from lra.schema import fields, identity
from tests.helpers import small


def _config(arg='listops_mini', model='simpletron', **changes):
  c = importlib.import_module(f'lra.configs.{model}').get_config(arg)
  c = c.copy_and_resolve_references()
  for name, value in changes.items():
    group, _, key = name.rpartition('.')
    part = c[group] if group else c
    with part.ignore_type(), part.unlocked():
      part[key] = value
  return c


def _refused(config, *words):
  """Asserts that a config is refused in one sentence that has these words."""
  with pytest.raises(UserError) as e:
    check.check(config)
  sentence = str(e.value)
  assert sentence.endswith('.') and '\n' not in sentence
  for word in words:
    assert word in sentence, sentence


@pytest.mark.parametrize('task, protocol', [
    (task, protocol) for protocol, known in protocols.PROTOCOLS.items()
    for task in known])
def test_every_protocol_passes(task, protocol):
  check.check(_config(f'{task},protocol={protocol}'))
  check.check(_config(f'{task},protocol={protocol}', 'super'))


NUMBERS = {n: f for n, f in fields.FIELDS.items() if f.annotation in (
    int, float)}


@pytest.mark.parametrize('name', NUMBERS)
def test_every_number_is_held_to_its_range(name):
  kind, bounds = NUMBERS[name].annotation, fields.bounds(NUMBERS[name])
  wrong = ['3'] + ([True, 1.5, 10**5000] if kind is int else [
      math.nan, math.inf, -math.inf])
  for word, limit in bounds.items():
    wrong.append({'at least': limit - 1, 'at most': (
        limit + 1 if kind is int else 2 * limit)}.get(word, limit))
  for value in wrong:
    _refused(_config(**{name: value}), f'config.{name}=',
             'whole' if kind is int else 'finite', *map(str, bounds.values()))
  for limit in (bounds.get('at least'), bounds.get('at most')):
    if limit is not None:
      try:
        check.check(_config(**{name: limit}))
      except UserError as e:  # from another field or a rule for two fields
        assert f'config.{name}={limit} is not possible: it' not in str(e)


@pytest.mark.parametrize('name, value', [
    ('train.b2', 0.9999999999), ('train.eps', 1e-39),
    ('encoder.norm_eps', 1e-39)])
def test_a_number_that_float32_rounds_out_of_its_range(name, value):
  _refused(_config(**{name: value}), f'config.{name}={value}')


def _numbers(model):
  """Returns a mixer's own numeric arguments, without fields of every config."""
  return [f for f in dataclasses.fields(models.mixer(model))
          if f.type in (int, float) and f.name not in models.GIVEN
          and f'model.{f.name}' not in fields.FIELDS]


ARGUMENTS = [(m, f) for m in models.names() for f in _numbers(m)]


@pytest.mark.parametrize('model,argument', ARGUMENTS, ids=lambda x: getattr(
    x, 'name', x))
def test_every_number_of_a_mixer_is_held_to_its_range(model, argument):
  limits = argument.metadata
  low, high = (limits.get(a, limits.get(b)) for a, b in (
      ('low', 'above'), ('high', 'below')))
  assert low is not None and high is not None, 'declare both ends of its range'
  wrong = [low if 'above' in limits else low - 1,
           high if 'below' in limits else 2 * high + 1, True, 'x']
  wrong += [1.5] if argument.type is int else [math.nan, math.inf]
  mixer = models.mixer(model)
  for value in wrong:
    with pytest.raises(UserError) as e:
      check.check_arguments(mixer, model, {argument.name: value})
    assert f'config.model.{argument.name}=' in str(e.value)
    assert f'{low}' in str(e.value) and f'{high}' in str(e.value)
  for value in (argument.default, *(
      limits[end] for end in ('low', 'high') if end in limits)):
    check.check_arguments(mixer, model, {argument.name: value})


class _Mixer(nn.Module):
  slope: float = 1.0
  count: int = 3
  anything: dict | None = None
  dtype: jnp.dtype = jnp.float32


class _WithoutDtype(nn.Module):
  slope: float = 1.0


@pytest.mark.parametrize('mixer, arguments, words', [
    (_WithoutDtype, {}, 'lra/models/own.py has no dtype: add'),
    (_Mixer, {'slop': 2.0}, 'config.model.slop means nothing to own: its '
     'arguments are anything, count, slope.'),
    (_Mixer, {'layer': 1}, 'config.model.layer means nothing'),
    *((_Mixer, {name: value}, f'config.model.{name}=')
      for name, values in {'slope': [math.nan, 'x'], 'count': [
          1.5, 2**31, -2**31]}.items() for value in values)])
def test_arguments_that_a_mixer_cannot_have(mixer, arguments, words):
  with pytest.raises(UserError) as e:
    check.check_arguments(mixer, 'own', arguments)
  assert words in str(e.value)


@pytest.mark.parametrize('name', [
    n for n, f in fields.FIELDS.items() if f.annotation not in (int, float)
    and n != 'task'])
def test_other_types_and_choices_are_held(name):
  choices = fields.choices(fields.FIELDS[name])
  _refused(_config(**{name: 3}), f'config.{name}=3', *(
      choices or ['must be']))
  if choices:
    _refused(_config(**{name: 'nothing'}), f"config.{name}='nothing'", *choices)


@pytest.mark.parametrize(('name', 'meant'), [
    ('train.stepz', 'config.train.steps?'), ('stepz', 'config.train.steps?'),
    ('optim.x.y', 'schema/fields.py')])
def test_an_unknown_field(name, meant):
  c = _config(**({name: 3} if name.count('.') < 2 else {'optim.x': {'y': 3}}))
  where = f'config.{name.rsplit(".", name.count(".") > 1)[0]}'
  with pytest.raises(UserError, match=re.escape(meant)) as error:
    check.check(c)
  assert where in str(error.value)


def test_a_run_of_a_newer_version_asks_for_an_update(tmp_path):
  values = _config().to_dict() | {'hyperdrive': 1}
  files.write_json(tmp_path / 'config.json', values)
  with pytest.raises(UserError, match='hyperdrive.*update lra'):
    restore.scored(tmp_path)


@pytest.mark.parametrize('name', [
    n for n in fields.FIELDS if n not in ('model.num_heads', 'model.qkv_width')
])
def test_a_missing_field(name):
  c, (group, _, key) = _config(), name.rpartition('.')
  with c.unlocked():
    del (c[group] if group else c)[key]
  _refused(c, f'config.{name} is missing')


TEXT, IMAGE, PROBE = 'text', 'image', 'parity'
# Task, model, changes of a config and words of the error.
BROKEN = [
    ('listops', 'simpletron', {'task': 'nothing'}, "'nothing'|listops"),
    (TEXT, 'super', {'mask_black': True}, 'pixels'),
    (TEXT, 'super', {'encoder.inputs': 'values'}, 'pixels: set it to ids'),
    (IMAGE, 'super', {'encoder.inputs': 'patches', 'seq_len': 16}, 'of 4'),
    (IMAGE, 'super', {'encoder.inputs': 'patches', 'train.masked_loss': 0.5},
     'single pixels'),
    (TEXT, 'super', {'train.masked_loss': 0.5, 'objective': 'masked'},
     'config.objective=masked'),
    (TEXT, 'super', {'train.augment': True}, 'window|config.seq_len'),
    (PROBE, 'super', {'train.augment': True}, 'no random change'),
    (IMAGE, 'super', {'train.augment': True, 'seq_len': 16}, 'whole examples'),
    (IMAGE, 'super', {'tokenizer': 'x'}, 'no texts'),
    (IMAGE, 'super', {'encoder.vocab_size': 20}, 'no texts'),
    (PROBE, 'super', {'seq_len': 16}, 'sequence, of 32; set it to 0'),
    (PROBE, 'super', {'seq_len': 33}, 'sequence, of 32; set it to 0'),
    ('listops_mini', 'super', {'seq_len': 33}, '32 tokens'),
    (TEXT, 'super', {'train.include_val': True}, 'train.select=last'),
    (TEXT, 'super', {'train.microbatch_size': 7}, 'train.batch_size=32'),
    (TEXT, 'super', {'encoder.norm_examples': 5, 'encoder.norm': 'batch'},
     'train.batch_size=32'),
    (TEXT, 'super', {'train.microbatch_size': 4, 'encoder.norm': 'batch',
                     'encoder.norm_examples': 8}, 'those of 8 examples'),
    *((TEXT, 'super', {'train.lengths': lengths}, 'whole numbers')
      for lengths in ((1.5,), (0,), ('a' * 300,), (2**20 + 1,))),
    *((TEXT, 'super', {'encoder.norm': 'none', f'encoder.{name}': value},
       'encoder.norm=none') for name, value in (
           ('norm_place', 'post'), ('norm_embedding', True))),
    (TEXT, 'super', {'encoder.block': 'glu', 'encoder.gelu': 'exact'}, 'glu'),
    (TEXT, 'super', {'encoder.pooler': True, 'encoder.head_layers': 3},
     'encoder.pooler=True'),
    (TEXT, 'super', {'encoder.dropout': 0.0, 'encoder.tie_dropout': True},
     'encoder.dropout'),
    (TEXT, 'super', {'optim.final_fraction': 0.1}, 'rsqrt'),
    (TEXT, 'super', {'optim.momentum': 0.5}, 'adamw|sgd'),
    *((TEXT, 'super', {'optim.groups': groups}, words) for groups, words in (
        (('.*', None), "'.*'"), ((('(', None),), 'cannot be read'),
        ((('(' * 5000 + ')' * 5000, {}),), 'cannot be read'),
        ((('.*', 3),), 'neither a dict'), ((('.*', {'rate': 1}),), "'rate'"),
        *(((('.*', {'learning_rate': rate}),), 'learning_rate|finite')
          for rate in (math.nan, -1.0, 1e39)))),
    *((TEXT, 'super', {f'train.{name}': value}, 'PARAM_GROUPS')
      for name, value in (('ssm_learning_rate', 0.1), ('ssm_weight_decay', 0.0),
                          ('ssm_parameters', ('b',)))),
    *((TEXT, 's5', {f'train.{name}': -0.5}, 'must be -1')
      for name in ('ssm_learning_rate', 'ssm_weight_decay')),
    (TEXT, 's5', {'train.ssm_parameters': ('b',)}, 'alone'),
    (TEXT, 's5', {'train.ssm_parameters': ('c',), 'train.ssm_weight_decay': 0.1
                  }, "'c'|log_step"),
    (TEXT, 'super', {'init_rules': (('a', 'b'),)}, 'without config.init_from'),
    (TEXT, 'super', {'init_from': 'x', 'pretrain.objective': 'masked'},
     'leave one out'),
    *((TEXT, 'super', {f'pretrain.{name}': value}, 'masked or causal')
      for name, value in (('steps', 3), ('learning_rate', 0.1))),
    (TEXT, 'super', {'pretrain.learning_rate': -0.5,
                     'pretrain.objective': 'masked'}, 'must be -1'),
    *((TEXT, 'super', {'init_rules': rules, 'init_from': 'x'}, words)
      for rules, words in ((('a',), 'not such a pair'), (
          (('a', 3),), 'neither a name'), ((('(', 'b'),), 'cannot be read'))),
    (TEXT, 'super', {'encoder.head_layers': 19}, 'mlp_width=1024'),
    (TEXT, 'super', {'encoder.mean_over': 'positions'}, 'pooling=mean'),
    *((TEXT, 'super', {f'encoder.{name}': value}, 'norm=batch')
      for name, value in (('norm_momentum', 0.5), ('norm_examples', 4))),
    *((TEXT, 'super', {'optim.name': 'sgd', f'train.{name}': value}, 'sgd')
      for name, value in (('b1', 0.5), ('b2', 0.5), ('eps', 1e-3))),
    *((TEXT, 'super', {f'encoder.{name}': value, **more}, words)
      for name, value, more, words in (
          ('norm_eps', 1e-3, {'encoder.norm': 'rms'}, 'norm=rms'),
          ('max_positions', 9, {'encoder.positions': 'none'}, 'positions=none'),
          ('cls_has_position', True, {'encoder.pooling': 'mean'}, 'pooling='),
          ('head', 'nli', {}, 'config.task=text'))),
    (TEXT, 'transformer', {'model.num_heads': 7}, 'encoder.width=256'),
]


@pytest.mark.parametrize('task, model, changes, words', BROKEN)
def test_fields_that_do_not_fit_together(task, model, changes, words):
  _refused(_config(task, model, **changes), *words.split('|'))


def test_each_rule_is_broken_by_one_of_these(monkeypatch):
  rules, broken = list(check.RULES), set()
  for task, model, changes, _ in BROKEN[1:]:
    for i, rule in enumerate(rules):
      monkeypatch.setattr(check, 'RULES', [rule])
      try:
        check.check(_config(task, model, **changes))
      except UserError:
        broken.add(i)
  assert broken == set(range(len(rules)))


@pytest.mark.parametrize('arg, model, changes, word', [
    (IMAGE, 'super', {'train.steps': 100}, 'train.warmup_steps'),
    ('image_mini', 'super', {'train.warmup_steps': 2000}, 'train.warmup_steps'),
    ('image_mini', 'super', {'train.steps': 1, 'train.warmup_steps': 0},
     'train.steps=1'),
    ('image_mini', 'super', {'optim.ema': 0.9999}, '82%'),
    ('text,protocol=s4', 'long_conv', {'train.ssm_learning_rate': 0.001},
     'train.ssm_learning_rate'),
    ('text,protocol=s5', 'long_conv', {}, 'train.ssm_weight_decay'),
    (TEXT, 'super', {'train.microbatch_size': 8, 'train.cpu_microbatch_size': 4
                     }, 'train.cpu_microbatch_size=4')])
def test_a_setting_without_effect_is_named(arg, model, changes, word):
  assert any(word in note for note in check.broken(
      check.NOTES, _config(arg, model, **changes)))


@pytest.mark.parametrize('arg, model, changes', [
    ('retrieval,protocol=lra', 'super', {}),  # published with a long warm-up
    ('image_mini', 'super', {'optim.ema': 0.99}),
    ('image_mini', 'super', {'train.steps': 201}),
    ('text,protocol=s4', 's4d', {}), ('text,protocol=s4', 'super', {}),
    ('image,protocol=s4', 'long_conv', {})])
def test_a_setting_with_an_effect_is_not(arg, model, changes):
  assert not [*check.broken(check.NOTES, _config(arg, model, **changes))]


def test_a_config_of_json_has_lists():
  """A protocol sets state-space parameters for mixers that have none, too."""
  c = _config('text,protocol=s5', 'transformer')
  c = _config('text,protocol=s5', 'transformer', **{
      name: list(c.train[name.removeprefix('train.')])
      for name in ('train.ssm_parameters', 'train.lengths')},
              init_rules=[], **{'optim.groups': []})
  check.check(c)


@pytest.mark.parametrize('model', ['performer', 'reformer', 'simpletron'])
def test_every_field_has_its_value_and_its_meaning(model):
  config = small.config(model, 'listops')
  text = check.described(config)
  found = dict(re.findall(r'^(\S+) = (.*)$', text, re.MULTILINE))
  assert found == {name: repr(value) for name, value in identity.flatten(
      config.to_dict()).items()}
  assert max(map(len, text.splitlines())) <= 80
  _, *meanings = re.split(r'^\S+ = .*\n?', text, flags=re.MULTILINE)
  for name, meaning in zip(found, meanings, strict=True):
    info = fields.FIELDS.get(name)
    assert ' '.join(meaning.split()).startswith(
        info.description if info else ''), name


def test_a_printed_config_says_who_has_set_a_field():
  file = 'configs/simpletron.py:listops_mini'
  made = experiment.resolve(loader.made_by([
      f'--config={file}', '--config.train.steps=77']), made_by=file)
  text = check.described(made.config, made.marks)
  for line in ('train.steps = 77  # changed', 'seed = 0',
               'encoder.width = 64  # protocol simpletron',
               "task = 'listops_mini'"):
    assert line in text.splitlines()
  other = 'configs/linformer.py:listops_mini'
  marks = experiment.resolve(
      loader.made_by([f'--config={other}']), made_by=other).marks
  assert any(mark.endswith('linformer.py') for mark in marks.values())
  assert 'changed' not in marks.values()


@pytest.mark.parametrize('model', models.names())
def test_every_argument_of_a_mixer_has_a_meaning(model):
  """Arguments that the encoder sets, or that have a field, need none."""
  found = check.arguments(models.mixer(model)).model_fields
  assert [name for name, info in found.items()
          if not info.description and name not in models.GIVEN
          and f'model.{name}' not in fields.FIELDS] == []
