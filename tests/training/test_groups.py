"""Tests parameter groups that are chosen by regular expressions."""

import jax
import numpy as np
import pytest

from lra.errors import UserError
from lra.training import optim
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
  # Rounding of the parameters is 1e-4 of so small an update.
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
