"""Tests parameter groups that are chosen by regular expressions."""

import jax
import numpy as np
import pytest

from lra import models
from lra.core.errors import UserError
from lra.run import optim
from tests.helpers import small


def _steps(groups, count=3, **optim_fields):
  """Returns two {name: array}: parameters before and after `count` updates."""
  c = small.config('transformer', 'listops', learning_rate=0.1)
  c.train.warmup_steps = 0
  c.optim.groups = groups
  c.optim.schedule = 'constant'
  c.optim.update(optim_fields)
  p = small.make(c)
  state, compiled = p.init(), p.compile_train()
  before = _arrays(state)
  for seed in range(count):
    batch = small.batch(p.objective.task, 4, 24, seed=seed, lead=(1,))
    state, _ = compiled(state, batch, p.put_given())
  return before, _arrays(state)


def _arrays(state):
  return {optim.path_name(path): np.asarray(x) for path, x in
          jax.tree_util.tree_leaves_with_path(jax.device_get(state.params))}


@pytest.mark.full
def test_frozen_parameters_keep_their_bytes():
  before, after = _steps((('encoder/.*', None), ('.*', {})))
  for name in before:
    same = before[name].tobytes() == after[name].tobytes()
    assert same == name.startswith('encoder/'), name


@pytest.mark.full
def test_a_group_has_its_own_rate_and_decay():
  """Plain SGD's first update is -rate * (g + decay * w) in each group."""
  plain = dict(name='sgd', momentum=0.0)
  rest = dict(learning_rate=0.1, weight_decay=0.0)
  before, one = _steps((('.*', rest),), 1, **plain)
  _, two = _steps(((r'head/.*kernel', dict(rest, learning_rate=0.3)),
                   (r'encoder/.*up/kernel', dict(rest, weight_decay=0.5)),
                   ('.*', rest)), 1, **plain)
  for name, start in before.items():
    moved = [np.asarray(x[name], np.float64) - start for x in (one, two)]
    expected = moved[0]
    if name.startswith('head/') and name.endswith('kernel'):
      expected = 3 * moved[0]
    elif name.endswith('up/kernel'):
      expected = moved[0] - 0.1 * 0.5 * start
    assert np.linalg.norm(moved[1] - expected) <= 1e-5 * (
        np.linalg.norm(expected) + np.linalg.norm(start)), name


@pytest.mark.full
def test_without_groups_and_with_one_for_all_is_the_same():
  _, plain = _steps(())
  _, grouped = _steps((('.*', {}),))
  for name, x in plain.items():
    assert np.linalg.norm(grouped[name] - x) <= 1e-6 * np.linalg.norm(x)


@pytest.mark.full
def test_clipping_does_not_count_frozen_gradients():
  """Large gradients of frozen parameters do not reduce the other updates."""
  fields = dict(name='sgd', momentum=0.0, clip_norm=1e-3)
  before, after = _steps((('encoder/.*', None), ('.*', {'weight_decay': 0.0})),
                         1, **fields)
  square = sum(np.sum((np.asarray(after[n], np.float64) - before[n])**2)
               for n in before)
  # Rounding the parameters changes so small an update by about 1e-4 of it.
  assert np.sqrt(square) == pytest.approx(0.1 * 1e-3, rel=1e-3)


@pytest.mark.parametrize('groups,words', [
    ((('encoder/.*', {}),), ['head/hidden_0/', "('.*', {})"]),
    ((('nothing', {}), ('.*', {})), ["'nothing'", 'encoder/block_0']),
    ((('kernel', {}), ('.*', {})), ["'kernel'", 'no parameter']),
    ((('encoder/.*', None), ('.*', None)), ['freezes every parameter']),
    ((('zzz', None),), ['parameter encoder/', "('.*', {})"]),
    ((('[', {}),), ["'['", 'cannot be read']),
    ((('.*', {'rate': 1}),), ["'rate'", 'learning_rate']),
    ((('.*', {'learning_rate': -1}),), ['-1', 'at least 0']),
    ((('.*', {'learning_rate': float('nan')}),), ['nan', 'finite']),
    (('.*',), ["'.*'", 'pairs']),
])
def test_bad_groups_are_refused_by_name(groups, words):
  with pytest.raises(UserError) as error:
    _steps(groups, 0)
  for word in ['config.optim.groups', *words]:
    assert word in str(error.value)


def _s5(groups=(), **train):
  c = small.config('s5', 'listops', learning_rate=0.1, weight_decay=0.5,
                   warmup_steps=0, **train)
  c.model.state_dim, c.model.blocks = 8, 2
  c.optim.update(groups=groups, schedule='constant', name='sgd', momentum=0.0)
  return c


# Published variants of S5: (fields of config.train, config.optim.groups,
# {parameter: (learning rate, weight decay)}).
_LAMBDA = {name: (0.01, 0.0) for name in (
    'lambda_real', 'lambda_imaginary', 'log_step')}
_SLOW = ('lambda_real', 'lambda_imaginary', 'log_step')
_VARIANTS = {
    'standard': ({}, (), {**_LAMBDA, 'b': (0.01, 0.0)}),
    'standard, dt_global': (
        {'ssm_parameters': ('lambda_real', 'lambda_imaginary', 'b')}, (),
        {**_LAMBDA, 'b': (0.01, 0.0), 'log_step': (0.1, 0.0)}),
    'BandCdecay': (
        {'ssm_parameters': _SLOW},
        (('.*/mixer/b', {'learning_rate': 0.01}), ('.*', {})),
        {**_LAMBDA, 'b': (0.01, 0.5)}),
    'BfastandCdecay': (
        {'ssm_parameters': _SLOW}, (), {**_LAMBDA, 'b': (0.1, 0.5)})}


@pytest.mark.parametrize('variant', _VARIANTS)
def test_the_groups_of_s5_can_be_expressed(variant):
  """One update of plain gradient descent is -rate * (g + decay * w)."""
  train, groups, expected = _VARIANTS[variant]
  p = small.make(_s5(groups, ssm_learning_rate=0.01, ssm_weight_decay=0.0,
                     **train))
  params = small.random_params(p)
  grads = small.random_params(p, seed=1)
  tx = optim.make(p.config)
  grads, norm = optim.gradient_norm(p.config, grads)
  updates, _ = tx.update(grads, tx.init(params), params, norm=norm)
  moved, starts, slopes = ({
      optim.path_name(path): np.asarray(x, np.float64) for path, x in
      jax.tree_util.tree_leaves_with_path(tree)}
      for tree in (updates, params, grads))
  seen = set()
  for name, start in starts.items():
    last = name.rpartition('/')[2]
    decays = start.ndim > 1 and 'bias' not in last
    rate, decay = expected.get(
        last if '/mixer/' in name else '', (0.1, 0.5 * decays))
    seen.add(last)
    np.testing.assert_allclose(
        moved[name], -rate * (slopes[name] + decay * start), rtol=1e-5,
        atol=1e-7, err_msg=name)
  assert set(expected) <= seen


def test_without_numbers_for_the_group_the_optimizer_is_the_same():
  c = _s5()
  assert optim.groups_of(c) == ()
  assert {k: v.shape for k, v in optim.numbers(c).items()} == {
      'learning_rate': (1,), 'weight_decay': (1,)}


@pytest.mark.parametrize('model,train,words', [
    ('transformer', {'ssm_learning_rate': 0.01}, ['ssm_learning_rate',
                                                  'transformer']),
    ('transformer', {'ssm_weight_decay': 0.0}, ['ssm_weight_decay']),
    ('transformer', {'ssm_parameters': ('b',)}, ['ssm_parameters']),
    ('s5', {'ssm_parameters': ('b',)}, ['ssm_learning_rate']),
    ('s5', {'ssm_learning_rate': -0.5}, ['-0.5', '-1']),
    ('s5', {'ssm_learning_rate': 0.1, 'ssm_parameters': ('c',)},
     ["'c'", 'log_step']),
])
def test_bad_settings_of_the_ssm_group_are_refused(model, train, words):
  with pytest.raises(UserError) as error:
    small.make(small.config(model, 'listops', **train))
  for word in words:
    assert word in str(error.value)


@pytest.mark.parametrize('model', [
    name for name in models.names() if hasattr(
        models.module(name), 'PARAM_GROUPS')])
def test_each_declared_parameter_exists(model):
  names = {optim.path_name(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(
               small.make(small.config(model, 'listops')).state_shape.params)}
  for parameter in models.module(model).PARAM_GROUPS:
    assert f'encoder/block_0/mixer/{parameter}' in names
