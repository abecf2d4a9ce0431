"""Tests that a run on a mesh gives the result of one device."""

import functools

import jax
import numpy as np
import pytest

from lra import models
from lra.core.errors import UserError
from lra.nn.mixer import traits_of
from lra.run import mesh, step
from tests.helpers import small

SPLITTING = sorted(
    name for name in models.names()
    if traits_of(models.mixer(name)()).splits_sequences)
MESHES = {
    'data': {'data': 4}, 'fsdp': {'data': 1, 'fsdp': 4},
    'both': {'data': 2, 'fsdp': 2}, 'sequence': {'data': 1, 'sequence': 4},
    'data_sequence': {'data': 2, 'sequence': 2},
    'fsdp_sequence': {'data': 1, 'fsdp': 2, 'sequence': 2}}


def _config(model, sizes, pooling='mean', options=(), **train):
  c = small.config(model, 'listops', batch_size=16, microbatch_size=8,
                   eval_batch_size=8, **train)
  c.unlock()
  c.encoder.width = c.encoder.mlp_width = 32
  if 'qkv_width' in c.model:
    c.model.qkv_width = 32
  c.encoder.pooling = pooling
  c.encoder.dropout = 0.2
  c.model.update(dict(options))
  c.mesh.update(sizes)
  return c


def _program(model, sizes=None, pooling='mean', options=()):
  return small.make(_config(model, sizes or {}, pooling, options),
                    4 if sizes else 1)


def _batch(p, micro=True):
  batch = small.batch(small.tasks.get('listops'), 8, 24, lead=(2,))
  batch['weights'] *= np.arange(8) < 7
  if not micro:
    batch = {name: x[0] for name, x in batch.items() if name != 'place'}
  return jax.device_put(batch, p.batch_shardings(micro=micro))


@functools.cache
def _gradient(model, sizes=None, **options):
  p = _program(model, MESHES.get(sizes), **options)
  state = p.init()
  f = jax.jit(functools.partial(step.batch_gradient, p.model, p.objective))
  with jax.set_mesh(p.mesh):
    grads, sums, _ = f(state.params, state.constants, _batch(p),
                       jax.random.key(0))
  return jax.device_get((grads, sums))


def _same(model, sizes, **options):
  for got, want in zip(_gradient(model, sizes, **options),
                       _gradient(model, None, **options), strict=True):
    small.assert_close(got, want)


@pytest.mark.full
@pytest.mark.parametrize('sizes, pooling', [
    *((sizes, 'mean') for sizes in MESHES), ('fsdp', 'cls'),
    ('data_sequence', 'cls')])
def test_gradients_with_dropout_are_those_of_one_device(sizes, pooling):
  _same('simpletron', sizes, pooling=pooling)


@pytest.mark.full
@pytest.mark.parametrize('model, options', [
    *((model, ()) for model in SPLITTING), ('rfa', (('gated', True),)),
    ('lightning', (('direction', 'bidirectional'),)),
    ('shen', (('normalization', 'scaling'),))])
def test_each_mixer_that_splits_sequences_does(model, options):
  _same(model, 'sequence', options=options)


def test_the_largest_of_what_devices_are_told_is_heard():
  sizes = {'data': 2, 'fsdp': 1, 'sequence': 2}
  send = mesh.largest(mesh.make(sizes, jax.devices()[:4]))
  heard = send(np.array([0, 1], np.int32), {'after': np.zeros(3)})
  np.testing.assert_array_equal(heard, [0, 1])


@pytest.mark.full
@pytest.mark.parametrize('model', ['transformer', 'sinkhorn', 'performer'])
def test_what_mixers_draw_does_not_depend_on_the_mesh(model):
  _same(model, 'data')
  _same(model, 'fsdp')


@pytest.mark.full
@pytest.mark.parametrize('sizes', ['both', 'data_sequence'])
def test_evaluation_is_that_of_one_device(sizes):
  counts = []
  for p in (_program('simpletron', MESHES[sizes]), _program('simpletron')):
    state = p.init()
    counts.append(jax.device_get(p.compile_eval()(
        state.params, state.constants, _batch(p, micro=False))))
  (ours, our_loss, _), (theirs, their_loss, _) = counts
  np.testing.assert_array_equal(ours, theirs)
  np.testing.assert_allclose(our_loss, their_loss, rtol=1e-5)


@pytest.mark.full
def test_fsdp_splits_parameters_and_optimizer_between_the_devices():
  p = _program('simpletron', MESHES['fsdp'])
  compiled, state = p.compile_train(), p.init()
  state, _ = compiled(state, _batch(p), p.put_given())
  for name in ('params', 'opt_state'):
    arrays = jax.tree.leaves(getattr(state, name))
    whole = sum(x.size for x in arrays)
    here = sum(x.addressable_shards[0].data.size for x in arrays)
    assert here < 0.5 * whole, name  # small arrays are replicated
    for x in arrays:
      assert x.sharding == mesh.of_state(p.mesh, x.shape)


@pytest.mark.parametrize('sizes, complaint', [
    ({'data': 3}, 'data=3, fsdp=1, sequence=1 is not possible on 4 devices'),
    ({'fsdp': 3}, 'fsdp=3, sequence=1 is not possible on 4 devices'),
    ({'data': -1, 'fsdp': -1}, 'fsdp=-1'), ({'sequence': 0}, 'sequence=0'),
    ({'data': 1, 'sequence': 4}, 'not possible with transformer')])
def test_what_is_not_possible_is_said(sizes, complaint):
  with pytest.raises(UserError, match=complaint):
    _program('transformer', sizes)


def test_devices_share_a_microbatch():
  two = {'data': 2, 'fsdp': 1, 'sequence': 1}
  mesh.check(small.experiment(small.config('simpletron', 'listops')), two)
  c = small.config('simpletron', 'listops', microbatch_size=1)
  with pytest.raises(UserError, match='microbatch_size=1 .*over 2 devices'):
    mesh.check(small.experiment(c), two)


@pytest.mark.full
def test_of_pairs_the_tokens_are_split_and_not_the_pair():
  c = small.config('simpletron', 'retrieval', eval_batch_size=4)
  c.unlock()
  c.mesh.update(MESHES['sequence'])
  p = small.make(c, None)
  for micro, lead in ((True, (None,)), (False, ())):
    spec = p.batch_shardings(micro=micro)['tokens'].spec
    assert spec == jax.P(*lead, ('data', 'fsdp'), None, 'sequence')
  counts = []
  for sizes in (MESHES['sequence'], {}):
    c.mesh.update({**mesh.ONE_DEVICE, **sizes})
    p = small.make(c, 4 if sizes else 1)
    state = p.init()
    batch = small.batch(small.tasks.get('retrieval'), 4, 24)
    batch = jax.device_put(batch, p.batch_shardings(micro=False))
    counts.append(jax.device_get(p.compile_eval()(
        state.params, state.constants, batch))[1])
  # Four devices sum the float32 losses in another order.
  np.testing.assert_allclose(*counts, rtol=1e-5)
