"""Tests that each check of a config fails with a sentence that names the field.
"""

import dataclasses
import importlib
import math

import flax.linen as nn
import jax.numpy as jnp
import pytest

from lra import models
from lra.configs import protocols
from lra.core import tasks
from lra.core.errors import UserError
from lra.run import check
from lra.schema import fields


def _config(arg='listops_mini', model='simpletron'):
  c = importlib.import_module(f'lra.configs.{model}').get_config(arg)
  return c.copy_and_resolve_references()


def _refuse(changes, *words):
  """Asserts that a config with these changes is refused in one sentence.

  The sentence must contain the names of the changed fields, and `words`.
  """
  c = _config()
  for name, value in changes.items():
    group, _, key = name.rpartition('.')
    part = c[group] if group else c
    with part.ignore_type(), part.unlocked():
      part[key] = value
  with pytest.raises(UserError) as e:
    check.check(c)
  sentence = str(e.value)
  assert sentence.endswith('.') and '\n' not in sentence
  for word in (*changes, *words):
    assert word in sentence, sentence


@pytest.mark.parametrize('task, protocol', [
    (task, protocol) for protocol, known in protocols.PROTOCOLS.items()
    for task in known])
def test_every_protocol_passes(task, protocol):
  check.check(_config(f'{task},protocol={protocol}'))
  check.check(_config(f'{task},protocol={protocol}', 'super'))


def test_references_need_not_be_resolved():
  check.check(
      importlib.import_module('lra.configs.reformer').get_config('listops'))


NUMBERS = {n: f for n, f in fields.FIELDS.items() if f.annotation in (
    int, float)}


@pytest.mark.parametrize('name', NUMBERS)
def test_every_number_is_held_to_its_range(name):
  kind, bounds = NUMBERS[name].annotation, fields.bounds(NUMBERS[name])
  wrong = ['3'] + ([True, 1.5] if kind is int else [
      math.nan, math.inf, -math.inf])
  for word, limit in bounds.items():
    wrong.append({'at least': limit - 1, 'at most': (
        limit + 1 if kind is int else 2 * limit)}.get(word, limit))
  for value in wrong:
    _refuse({name: value}, 'whole' if kind is int else 'finite',
            *map(str, bounds.values()))
  for limit in (bounds.get('at least'), bounds.get('at most')):
    if limit is not None:
      c = _config()
      group, _, key = name.rpartition('.')
      (c[group] if group else c)[key] = limit
      try:
        check.check(c)
      except UserError as e:  # from another field or a rule for two fields
        assert f'config.{name}={limit} is not possible: it' not in str(e)


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


def test_arguments_without_a_range_are_finite_and_whole_where_they_should_be():
  class Mixer(nn.Module):
    slope: float = 1.0
    count: int = 3
    anything: dict | None = None
    dtype: jnp.dtype = jnp.float32

  for name, value in (('slope', math.nan), ('slope', 'x'), ('count', 1.5),
                      ('count', 2**31), ('count', -2**31)):
    with pytest.raises(UserError, match=rf'config\.model\.{name}='):
      check.check_arguments(Mixer, 'own', {name: value})
  check.check_arguments(Mixer, 'own', {
      'slope': -3, 'count': -3, 'anything': {'a': 1}})


@pytest.mark.parametrize('name', [
    n for n, f in fields.FIELDS.items() if fields.choices(f)])
def test_every_choice_is_held(name):
  _refuse({name: 'nothing'}, "'nothing'", *fields.choices(fields.FIELDS[name]))


@pytest.mark.parametrize('name', [
    n for n, f in fields.FIELDS.items() if f.annotation not in (int, float)
    and not fields.choices(f) and n != 'task'])
def test_other_types_are_held(name):
  _refuse({name: 3}, 'must be')


def test_unknown_and_missing_fields():
  _refuse({'train.stepz': 3}, 'lra/schema/fields.py')
  _refuse({'stepz': 3}, 'lra/schema/fields.py')
  c = _config()
  del c.optim.ema
  with pytest.raises(UserError, match='config.optim.ema is missing'):
    check.check(c)


@pytest.mark.parametrize('changes,words', [
    ({'task': 'nothing'}, ["'nothing'", 'listops']),
    ({'seq_len': 33}, ['32 tokens']),
    ({'train.include_val': True}, ['train.select=last']),
    ({'train.microbatch_size': 7}, ['train.batch_size=32']),
    ({'model.num_heads': 7}, ['model.qkv_width=64']),
    ({'encoder.inputs': 'values'}, ['encoder.inputs=values']),
    ({'encoder.mean_over': 'positions'}, ['encoder.pooling=mean']),
    ({'optim.final_fraction': 0.1}, ['rsqrt']),
    ({'optim.momentum': 0.5}, ['adamw', 'sgd']),
    ({'optim.groups': ('.*', None)}, ["'.*'"]),
    ({'optim.groups': (('(', None),)}, ['cannot be read']),
    ({'optim.groups': (('.*', 3),)}, ['neither']),
    ({'optim.groups': (('.*', dict(rate=1)),)}, ["'rate'"]),
    ({'optim.groups': (('.*', dict(learning_rate=math.nan)),)},
     ['learning_rate', 'finite']),
])
def test_fields_that_do_not_fit_together(changes, words):
  if 'task' in changes:
    changes, words = dict(changes), list(words)
    c = _config()
    c.task = changes['task']
    with pytest.raises(UserError, match=f'{words[0]}.*{words[1]}'):
      check.check(c)
  else:
    _refuse(changes, *words)


def test_groups_that_are_sound():
  c = _config()
  c.optim.groups = (('.*/bias', dict(weight_decay=0.0)), ('mixer', {}),
                    ('.*', None))
  check.check(c)


@pytest.mark.parametrize(
    'task', [name for name, task in tasks.TASKS.items() if task.probe])
def test_what_a_probe_asks_is_not_cut_off(task):
  c = _config(task)
  whole = tasks.get(task).seq_len
  for length in (0, whole):
    c.seq_len = length
    check.check(c)
  for length in (whole // 2, whole + 1):
    c.seq_len = length
    with pytest.raises(UserError, match=f'sequence, of {whole}; set it to 0'):
      check.check(c)
