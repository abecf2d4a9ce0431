"""Compares state sizes with numbers counted in other ways.

The tests count states that kernels return, arrays that attention reads, and
keys that a step-by-step algorithm has to keep.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels, models
from lra.core.errors import UserError
from lra.nn import patterns
from lra.nn.block_sparse import PatternMixer
from lra.nn.convolution import under_kernel
from lra.nn.features import FeatureMixer
from lra.nn.mixer import state_size
from lra.nn.patterns import Pattern
from tests.helpers import mixer_oracle, sparse_oracle
from tools import tables

WIDTH, LENGTH = 16, 40


def _mixer(name, **options):
  return tables.mixer(name, width=WIDTH, heads=4, **options)


def _numbers(tree):
  """Counts the numbers in arrays; a complex number counts as two."""
  return sum(x.size * (1 + jnp.iscomplexobj(x))
             for x in jax.tree_util.tree_leaves(tree))


def _spy(monkeypatch, mixer, name, count):
  """Calls `count(kernel, *arguments)` whenever the mixer runs `kernels.<name>`.
  """
  x, mask = mixer_oracle.ragged(LENGTH, width=WIDTH)
  init = functools.partial(mixer.init, train=False)
  variables = jax.eval_shape(init, jax.random.key(0), x, mask)
  run = getattr(kernels, name)

  def spy(*args, **kwargs):
    count(functools.partial(run, **kwargs), *args)
    return run(*args, **kwargs)

  monkeypatch.setattr(kernels, name, spy)
  monkeypatch.setattr(kernels, 'sharded', lambda function: function)
  jax.eval_shape(functools.partial(mixer.apply, train=False), variables, x,
                 mask)


@pytest.mark.parametrize('name', models.names())
def test_every_model_says_its_state(name):
  size = state_size(_mixer(name), WIDTH, LENGTH)
  assert type(size) is int and size > 0


@pytest.mark.parametrize('model, op', [
    ('linear_transformer', kernels.linear_attention),
    ('simpletron', kernels.simpletron_attention),
    ('lightning', kernels.lightning_attention)])
def test_state_that_the_kernel_of_linear_attention_returns(model, op):
  q, k, v = np.random.default_rng(0).normal(
      size=(3, 1, LENGTH, 4, WIDTH // 4)).astype(np.float32)
  _, state = op(q, k, v, return_state=True)
  assert state_size(_mixer(model), WIDTH, LENGTH) == _numbers(state)


@pytest.mark.parametrize('model', [
    'transformer', 'transformer_rotary', 'transformer_t5', 'transformer_alibi',
    'gqa', 'mqa', 'optimised', 'efficient', 'super', 'linformer'])
def test_keys_and_values_that_attention_reads(monkeypatch, model):
  mixer, seen = _mixer(model), {}

  def count(_, q, *keys_and_values):
    del q
    seen.update({id(x): x for x in keys_and_values})

  _spy(monkeypatch, mixer, 'softmax_attention', count)
  cache_bytes = sum(x.size * x.dtype.itemsize for x in seen.values())
  assert 4 * state_size(mixer, WIDTH, LENGTH) == cache_bytes


@pytest.mark.parametrize('model', [
    name for name in models.names()
    if issubclass(models.mixer(name), FeatureMixer)])
def test_sums_over_features(monkeypatch, model):
  mixer, sizes = _mixer(model), []

  def count(_, q, k, v):
    del q
    sizes.append(k.shape[2] * k.shape[3] * (v.shape[3] + 1))

  _spy(monkeypatch, mixer, 'linear_attention', count)
  assert [state_size(mixer, WIDTH, LENGTH)] == sizes


def _most_kept(seen):
  """Returns the most keys kept at once to answer queries in order.

  Entry (i, j) of `seen`, bool [L, L], is whether query i sees key j. A query is
  answered when its last key is read.
  """
  length = len(seen)
  answered = np.array([max([i, *np.flatnonzero(row)])
                       for i, row in enumerate(seen)])
  until = [max(answered[np.flatnonzero(column)], default=-1)
           for column in seen.T]
  return max(sum(j <= t <= until[j] for j in range(length))
             for t in range(length))


@pytest.mark.parametrize('pattern', [
    Pattern(block=7),
    Pattern(block=4, offsets=(-1, 0)),
    Pattern(block=8, global_keys=8),
    Pattern(offsets=(), summary=(5, 2)),
    Pattern(block=20, dilation=2),
    patterns.sliding_window(37),
    patterns.sliding_window(5),
    patterns.sliding_window(5, global_keys=3),
    patterns.sliding_window(5, dilation=2),
    patterns.sliding_window(5, causal=True, dilation=2),
    patterns.sliding_window(0),
  ])
def test_keys_that_a_pattern_keeps(pattern):
  seen = sparse_oracle.seen_by(pattern, LENGTH)
  assert pattern.kept(LENGTH) == _most_kept(seen)


@pytest.mark.parametrize('model', [
    name for name in models.names()
    if issubclass(models.mixer(name), PatternMixer) and name != 'bigbird'])
def test_patterns_of_all_heads(model):
  mixer = _mixer(model)
  groups = mixer.patterns(LENGTH)
  shared = 4 if model.endswith('_mqa') else 1
  keys = sum(map(_most_kept, map(_without, groups))) / len(groups)
  assert state_size(mixer, WIDTH, LENGTH) == 2 * WIDTH * keys / shared


def _without(pattern):
  """Returns a pattern's matrix, but global queries see only themselves."""
  seen = sparse_oracle.seen_by(pattern, LENGTH)
  few = pattern.global_queries
  seen[:few] = np.eye(LENGTH, dtype=bool)[:few]
  return seen


def test_a_convolution_keeps_no_more_than_there_is():
  assert under_kernel(4, channels=3, length=10) == 12
  assert under_kernel(64, channels=3, length=10) == 30


class _Half(nn.Module):

  def state_size(self, width):
    return width / 2


def test_a_state_is_a_count_or_unknown():
  assert state_size(nn.Dense(4), 4, 8) is None
  with pytest.raises(UserError, match='state_size returns 2.0'):
    state_size(_Half(), 4, 8)
