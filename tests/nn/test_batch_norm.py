"""Tests BatchNorm alone, in training steps and in whole runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lra
from lra.core.errors import UserError
from lra.nn.norm import BATCH_EPS, STATS, BatchNorm
from lra.run import restore, step, train
from tests.helpers import same_run, small


def _case(rows=4, length=7, width=6):
  rng = np.random.default_rng(0)
  x = (2 * rng.normal(size=(rows, length, width)) + 1).astype(np.float32)
  mask = np.arange(length) < rng.integers(2, length + 1, rows)[:, None]
  params = {'scale': rng.normal(size=width).astype(np.float32),
            'bias': rng.normal(size=width).astype(np.float32)}
  stats = {'mean': rng.normal(size=width).astype(np.float32),
           'var': rng.uniform(0.5, 2, width).astype(np.float32)}
  return params, stats, x, mask, rng.normal(size=x.shape)


def _exact(x, mask, scale, bias, rows):
  """Returns the norm, and mean and variance averaged over groups, float64."""
  y, moments = np.empty(x.shape), []
  for first in range(0, len(x), rows):
    group = slice(first, first + rows)
    tokens = x[group][mask[group]]  # [number of tokens, D]
    moments.append((tokens.mean(0), tokens.var(0)))
    y[group] = (x[group] - moments[-1][0]) / np.sqrt(
        moments[-1][1] + BATCH_EPS) * scale + bias
  return y, np.mean(moments, 0)


@pytest.mark.parametrize('rows', [0, 2, 1])
def test_training_equals_float64_with_padding(rows):
  """Outputs, running statistics and directional derivatives equal float64."""
  params, stats, x, mask, dy = _case()
  dy *= mask[..., None]  # nothing reads padding
  module = BatchNorm(momentum=0.8, rows=rows)

  def loss(params, x):
    y, new = module.apply({'params': params, STATS: stats}, x, mask,
                          train=True, mutable=[STATS])
    return jnp.sum(y * np.float32(dy)), (y, new)

  (_, (y, new)), found = jax.jit(jax.value_and_grad(
      loss, argnums=(0, 1), has_aux=True))(params, x)
  exact = [np.float64(a) for a in (x, params['scale'], params['bias'])]
  of = lambda x, scale, bias: _exact(x, mask, scale, bias, rows or len(x))
  want, (mean, variance) = of(*exact)
  small.assert_close(y[mask], want[mask])
  small.assert_close(new[STATS], {
      'mean': 0.8 * stats['mean'] + 0.2 * mean,
      'var': 0.8 * stats['var'] + 0.2 * variance})
  got = [found[1], found[0]['scale'], found[0]['bias']]
  assert not np.any(np.asarray(found[1])[~mask])
  for seed in range(5):
    rng = np.random.default_rng(seed)
    along = [rng.normal(size=a.shape) for a in exact]
    here, there = ((of(*(a + h * d for a, d in zip(
        exact, along, strict=True)))[0] * dy).sum() for h in (1e-6, -1e-6))
    np.testing.assert_allclose(
        sum((np.float64(g) * d).sum() for g, d in zip(
            got, along, strict=True)), (here - there) / 2e-6, rtol=1e-3)


def test_evaluation_uses_running_statistics():
  params, stats, x, mask, _ = _case()
  y = BatchNorm().apply({'params': params, STATS: stats}, x, mask, train=False)
  want = ((np.float64(x) - stats['mean']) / np.sqrt(stats['var'] + BATCH_EPS)
          * params['scale'] + params['bias'])
  small.assert_close(y, want)


@functools.cache
def _step(microbatch, *, mesh=(), examples=0, task='listops', place='pre'):
  """Returns the gradient, sums and statistics of one batch of 8."""
  c = small.config('simpletron', task, batch_size=8, microbatch_size=microbatch,
                   eval_batch_size=8)
  c.encoder.update(norm='batch', norm_examples=examples, norm_place=place,
                   dropout=0.2, pooling='mean')
  c.mesh.update(dict(mesh))
  p = small.make(c, 2 if mesh else 1)
  batch = small.batch(p.objective.task, 8, 24)
  batch['place'] = np.arange(8, dtype=np.int32)
  batch = {k: v.reshape(-1, microbatch, *v.shape[1:]) for k, v in batch.items()}
  f = jax.jit(functools.partial(step.batch_gradient, p.model, p.objective))
  params = small.random_params(p)
  constants = jax.tree.map(lambda s: np.full(s.shape, 0.1, s.dtype),
                           p.state_shape.constants)
  with jax.set_mesh(p.mesh):
    return jax.device_get(f(
        params, constants,
        jax.device_put(batch, p.batch_shardings(micro=True)),
        jax.random.key(0)))


def _same(got, want):
  for x, y in zip(got, want, strict=True):
    small.assert_close(x, y, 3e-5)


@pytest.mark.every(4, 3)
@pytest.mark.parametrize('options', [{'place': 'post'}, {}], ids=str)
@pytest.mark.parametrize('size', [4, 2])
def test_no_microbatch_changes_a_step(size, options):
  """Groups of two examples share statistics, in 1, 2 or 4 microbatches."""
  one = _step(8, examples=2, **options)
  assert jax.tree.leaves(one[2])
  _same(_step(size, examples=2, **options), one)
  with pytest.raises(AssertionError):
    _same(_step(8, **options), one)  # eight share statistics here


@pytest.mark.every(8, 6)
@pytest.mark.parametrize('mesh', [
    {'data': 2}, {'data': 1, 'fsdp': 2}, {'data': 1, 'sequence': 2}])
@pytest.mark.parametrize('options', [
    {'task': 'retrieval'}, {'task': 'retrieval', 'examples': 2},
    {}, {'examples': 8}, {'examples': 2}])
def test_two_devices_equal_one(mesh, options):
  micro = options.get('examples') or 8
  _same(_step(micro, mesh=tuple(mesh.items()), **options),
        _step(8, **options))


@pytest.mark.parametrize('changes, words', [
    ({'train.microbatch_size': 4}, ['microbatch_size=4', 'norm_examples']),
    ({'encoder.norm_examples': 3}, ['norm_examples=3', 'batch_size=8']),
    ({'encoder.norm': 'layer', 'encoder.norm_examples': 2}, [
        'norm_examples=2', 'norm=layer']),
    ({'encoder.norm': 'layer', 'encoder.norm_momentum': 0.95}, [
        'norm_momentum=0.95'])])
def test_bad_settings_are_refused(changes, words):
  c = small.config('simpletron', 'listops', batch_size=8, microbatch_size=0)
  c.encoder.norm = 'batch'
  for name, value in changes.items():
    group, _, field = name.partition('.')
    c[group][field] = value
  with pytest.raises(UserError) as error:
    small.make(c)
  for word in words:
    assert word in str(error.value)


def test_microbatches_hold_whole_groups():
  for examples, want in ((0, 32), (4, 8), (16, 16)):
    c = small.config('simpletron', 'listops', batch_size=32, microbatch_size=0)
    c.encoder.update(norm='batch', norm_examples=examples)
    assert small.make(c).sizes.microbatch == want


def _run_config(data_dir):
  c = same_run.config(data_dir, batch_size=8, microbatch_size=8)
  c.encoder.update(norm='batch', norm_momentum=0.5)
  return c


@pytest.mark.full
def test_a_killed_run_resumes_with_its_running_statistics(
    mini_data, tmp_path, monkeypatch):
  """A killed run ends bit for bit like a whole one.

  The model loaded afterwards has the recorded test accuracy.
  """
  c = _run_config(mini_data)
  whole, broken = tmp_path / 'whole', tmp_path / 'broken'
  result = train.train(small.experiment(c, whole))
  for lines in (3, 2):
    with monkeypatch.context() as patch, pytest.raises(same_run.Killed):
      same_run.kill_after(patch, lines)
      train.train(small.experiment(c, broken))
  train.train(small.experiment(c, broken))
  same_run.check(whole, broken, c, None)
  made, kept, _ = restore.scored(whole)
  fresh = made.init().constants[STATS]
  for new, old in zip(*map(jax.tree.leaves, (
      kept['constants'][STATS], fresh)), strict=True):
    assert np.abs(np.asarray(new) - np.asarray(old)).max() > 1e-3
  assert lra.load(whole).evaluate('test')['accuracy'] == result.test.accuracy
