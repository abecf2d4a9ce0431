"""Facts of single models: sizes of state and parameters, and refusals."""

import functools

import jax
import numpy as np
import pytest

from lra import models
from lra.core.errors import UserError
from tests.helpers import mixer_oracle, small

HEADS = {'num_heads': 2, 'qkv_width': 8}
CAUSAL = {'direction': 'causal'}


@pytest.mark.parametrize('name, options, width, size', [
    ('gla', {'num_heads': 4}, 64, 4 * 8 * 16),
    ('retnet', {'num_heads': 4}, 64, 4 * 16 * 32),
    ('hgrn2', {'num_heads': 4}, 64, 4 * 16 * 16),
    ('metala', {'num_heads': 4}, 64, 4 * 8 * 16),
    ('mamba2', {'num_heads': 4, 'state_dim': 6}, 64, 4 * 6 * 32),
    ('hydra', {'num_heads': 4, 'state_dim': 6}, 64, 4 * 6 * 32),
    ('lion', {'num_heads': 4}, 64, 4 * 16 * 17),
    ('mlstm', {'num_heads': 4}, 64, 4 * (32 * 33 + 1)),
    ('deltanet', {'num_heads': 4}, 32, 4 * 8 * 8),
    ('deltanet', {'num_heads': 4, 'key_width': 8}, 32, 4 * 2 * 8),
    ('rwkv7', {'num_heads': 4}, 32, 4 * 8 * 8),
    ('lightning', {'num_heads': 4, 'qkv_width': 16}, 16, 64),
    ('hgrn', {}, 8, 16), ('lru', {'state_dim': 10}, 64, 20),
    ('s4d', {'state_dim': 8}, 12, 96),
    ('s5', {'state_dim': 16, 'blocks': 2}, 64, 16)])
def test_size_of_the_state(name, options, width, size):
  """Both directions have a state each."""
  mixer = models.mixer(name)(**options)
  assert mixer.clone(direction='causal').state_size(width) == size
  assert mixer.clone(direction='bidirectional').state_size(width) == 2 * size


DIRECTED = [name for name in models.names()
            if 'direction' in models.mixer(name).__dataclass_fields__]


@pytest.mark.parametrize('name, options, match', [
    *((name, {'direction': 'both'}, "config.model.direction='both'")
      for name in DIRECTED),
    *((name, {'num_heads': 5}, 'num_heads=5') for name in (
        'gla', 'retnet', 'hgrn2', 'metala', 'mamba2', 'hydra', 'lion', 'mlstm',
        'deltanet')),
    *((name, {'num_heads': 3}, '3 heads') for name in (
        'transformer', 'gat', 'rwkv7')),
    *((name, {'kernel': 'cuda'}, 'kernel=cuda') for name in (
        'gla', 'retnet', 'mamba2', 'deltanet', 'linear_transformer',
        'transformer', 'efficient', 'lightning', 'mla', 's5')),
    ('retnet', {'num_heads': 16}, 'width 1'),
    ('hydra', {'num_heads': 4, 'groups': 3}, 'groups=3'),
    ('mamba2', {'num_heads': 4, 'groups': 3}, 'groups=3'),
    ('mamba2', {'dt_min': 0.5}, 'dt_min=0.5'),
    ('mlstm', {'num_heads': 4, 'block_width': 5}, 'block_width=5'),
    ('mlstm', {'forget_gate': 'tanh'}, 'forget_gate'),
    ('lion', {'decay': 'slow'}, 'decay'),
    ('lion', {'memory': 'endless'}, 'memory'),
    ('deltanet', {'key_width': 7}, 'width of 7'),
    ('lightning', {'decay': False, 'decay_by_depth': True}, 'decay_by_depth'),
    ('lru', {'r_min': 0.9, 'r_max': 0.5}, 'r_min=0.9'),
    ('mega', {'attention': 'relu2'}, 'attention'),
    ('s4d', {'state_dim': 7}, 'state_dim=7'),
    ('s4d', {'a_init': 'fourier'}, 'a_init'),
    ('s5', {'state_dim': 12, 'blocks': 4}, 'state_dim=12'),
    ('s5', {'c_init': 'zero'}, 'c_init'),
    ('s5', {'activation': 'relu'}, 'activation'),
    ('s5', {'dt_min': 0.2}, 'dt_min'),
    ('s5', {'discretisation': 'euler'}, 'discretisation'),
    ('compressive', {'segment_size': 8, 'rate': 3}, 'config.model.rate=3'),
    ('compressive', {'compression': 'sum'}, "model.compression='sum'"),
    ('differential', {'num_heads': 1}, 'config.model.num_heads=1 cannot'),
    ('etc', {'sharing': 'some'}, 'all, sides, none'),
    ('gqa', {'num_heads': 4, 'num_kv_heads': 3},
     'config.model.num_kv_heads=3 does not'),
    ('linformer', {'sharing': 'layer'}, 'none, headwise, kv'),
    ('mla', {'rotary_width': 3}, 'config.model.rotary_width=3 cannot'),
    ('nystromformer', {'pinv_init': 'best'}, 'original, exact'),
    ('performer', {'feature_map': 'elu'}, 'config.model.feature_map'),
    ('performer', {'feature_map': 'relu', 'eps': 0.1},
     'eps=0.1 belongs to exponential'),
    ('reformer', {'num_buckets': 3}, 'config.model.num_buckets'),
    ('rfa', {'gated': True, 'kernel': 'pallas_gpu'}, 'has no gates'),
    ('routing', {'local_heads': 2}, 'local_heads=2'),
    ('shen', {'normalization': 'mean'}, "model.normalization='mean'"),
    ('sparse_strided', {'num_heads': 1}, 'num_heads must be 2'),
    ('sparse_fixed', {'num_heads': 1}, 'num_heads must be 2'),
    ('sparse_fixed', {'summary': 0}, 'must be|or more'),
    ('bigbird', {'window_blocks': 2}, 'must be odd'),
    ('gmm_rks', {'num_features': 3}, 'num_features=3'),
    ('generative_rks', {'num_features': 3}, 'num_features=3'),
    ('fastfood_rks', {'num_features': 2}, 'num_features=2'),
    ('simpletron', {'qkv_width': 12}, 'config.model.qkv_width=12 must equal'),
    ('synthesizer', {'variant': 'local'}, 'variant'),
    ('synthesizer', {'variant': 'random', 'kernel': 'chunked'}, 'variant'),
    ('synthesizer', {'variant': 'dense', 'trainable': False}, 'variant'),
    ('transformer', {'attention_dropout': 0.5, 'kernel': 'splash'},
     'attention_dropout'),
    ('transformer_t5', {'num_buckets': 30}, 'num_buckets=30 is not'),
    ('transformer_t5', {'num_buckets': 32, 'max_distance': 8},
     'num_buckets=32 is not')], ids=str)
def test_refusals(name, options, match):
  cls = models.mixer(name)
  sizes = {'num_heads': 2, 'qkv_width': 16, 'state_dim': 16}
  with pytest.raises(UserError, match=match):
    mixer = cls(**{k: v for k, v in {**sizes, **options}.items()
                   if k in options or k in cls.__dataclass_fields__})
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))


def _step(name):
  return lambda p: np.log(np.log1p(np.exp(p[name])))


HEADS_200, LOG = {'num_heads': 200}, (np.log(0.001), np.log(0.1))
RING = {'state_dim': 800, 'r_min': 0.6, 'r_max': 0.8, 'max_phase': 0.3}


@pytest.mark.parametrize('name, options, of, low, high', [
    *((name, HEADS_200, _step('dt_bias'), *LOG)
      for name in ('gated_deltanet', 'kda')),
    ('mamba2', HEADS_200, _step('step_bias'), *LOG),
    *((name, HEADS_200, lambda p: np.exp(p['log_rate']), low, 16)
      for name, low in (('gated_deltanet', 0), ('kda', 1), ('mamba2', 1))),
    *(('lion', {**HEADS_200, 'memory': 'long', 'decay': decay},
       lambda p: -np.log1p(np.exp(-p['forget'])), *LOG)
      for decay in ('fixed', 'selective')),
    # The ring's area, 1 - gamma^2, and phases.
    ('lru', RING, lambda p: np.exp(-2 * np.exp(p['log_nu'])), 0.36, 0.64),
    ('lru', RING, lambda p: 1 - np.exp(2 * p['log_gamma']), 0.36, 0.64),
    ('lru', RING, lambda p: np.exp(p['log_theta']), 0, 0.3)])
def test_initial_values_are_uniform_in_their_range(
    name, options, of, low, high):
  found = of(mixer_oracle.start(
      models.mixer(name)(**options), *mixer_oracle.ragged(4, width=800)))
  place = (found - low) / (high - low)
  assert -1e-3 <= place.min() < 0.1 and 0.9 < place.max() <= 1.001
  np.testing.assert_allclose(place.mean(), 0.5, atol=0.1)


@pytest.mark.parametrize('name, options, of, deviation', [
    *(('retnet', {'released': released}, lambda p, name=name: p[name]['kernel'],
       gain * (2 / (256 + width))**0.5)
      for released, ins, out in ((True, 2**-2.5, 0.5), (False, 1, 1))
      for name, gain, width in (('query', ins, 256), ('key', ins, 256),
                                ('value', ins, 512), ('gate', ins, 512),
                                ('out', out, 512))),
    *(('mlstm', {'num_layers': 4, 'released': released},
       lambda p, name=name: p[name]['kernel'], deviation)
      for released, deviations in (
          (True, (640**-0.5, 640**-0.5, 1 / 32)),
          (False, (256**-0.5, 256**-0.5, 512**-0.5)))
      for name, deviation in zip(('inputs', 'gate', 'out'), deviations,
                                 strict=True)),
    ('mlstm', {}, lambda p: p['query'], 640**-0.5),
    *(('metala', {}, lambda p, name=name: p[name]['kernel'],
       (2 / (256 + 128))**0.5) for name in ('query', 'forget'))])
def test_initial_deviations(name, options, of, deviation):
  """Those of the released code, or those that older records had."""
  found = of(mixer_oracle.start(
      models.mixer(name)(**options), *mixer_oracle.ragged(2, width=256)))
  np.testing.assert_allclose(found.std(), deviation, rtol=0.02)


@pytest.mark.parametrize('name, options, factor', [
    ('transformer', {}, 4), ('optimised', {}, 3), ('efficient', {}, 2),
    ('super', {}, 3), ('gqa', {'num_heads': 8, 'num_kv_heads': 2}, 2.5),
    ('gqa', {'num_heads': 4, 'num_kv_heads': 1}, 2.5),
    ('mqa', {'num_heads': 4}, 2.5)])
@pytest.mark.parametrize('width', [32, 64, 144])
def test_number_of_parameters(name, options, factor, width):
  """The papers' factors of D^2 + D, for sequences of D tokens."""
  cls = models.mixer(name)
  if 'qkv_width' in cls.__dataclass_fields__:
    options = {**options, 'qkv_width': width}
  params = mixer_oracle.shapes(
      cls(**options), *mixer_oracle.ragged(width, width=width))
  assert sum(p.size for p in jax.tree.leaves(params)) == factor * (
      width**2 + width)


@pytest.mark.parametrize('name, options', [
    ('infini', {**HEADS, 'segment_size': 5}), ('ngram', {**HEADS, 'order': 9}),
    ('compressive', {**HEADS, 'segment_size': 6, 'rate': 3}),
    ('selective', {**HEADS, **CAUSAL}), ('rfa', {**HEADS, 'gated': True}),
    ('lightning', HEADS), ('lru', {'state_dim': 4, **CAUSAL}),
    ('hydra', {'num_heads': 2, 'state_dim': 3, **CAUSAL}),
    ('metala', {'num_heads': 2, 'conv_width': 3, **CAUSAL})])
def test_a_causal_mixer_sees_nothing_that_comes_later(name, options):
  mixer = models.mixer(name)(**options)
  assert mixer.traits.causal
  x, mask = mixer_oracle.ragged(30, width=8)
  variables = mixer_oracle.init(mixer, x, mask)
  other = x.copy()
  other[:, 20:] += 1
  got, want = (mixer_oracle.apply(mixer, variables, y, mask)
               for y in (other, x))
  small.assert_close(got[:, :20], want[:, :20])
  assert np.abs(got[:, 20:] - want[:, 20:]).max() > 0.01


@pytest.mark.parametrize('name, options', [
    ('deltaproduct', {}), ('metala', {'conv_width': 3}), ('mamba2', {}),
    ('hgrn2', {})])
def test_both_ways_are_read_alike(name, options):
  """A mixer whose ways share all parameters turns with its inputs."""
  mixer = models.mixer(name)(num_heads=2, **options)
  x, mask = mixer_oracle.ragged(9, width=16)
  variables = mixer_oracle.init(mixer, x, mask)
  y, turned = (mixer_oracle.apply(mixer, variables, x, mask)
               for x in (x, x[:, ::-1]))
  small.assert_close(turned[:, ::-1], y)
  assert np.abs(turned - y).max() > 1e-3


@pytest.mark.parametrize('pooling', ['cls', 'first'])
@pytest.mark.parametrize('name', ['infini', 'ngram', 'lightning', 'rfa'])
def test_a_causal_mixer_is_not_read_from_its_first_position(name, pooling):
  c = small.config(name, 'listops')
  if name == 'rfa':
    c.model.gated = True
  c.encoder.pooling = 'mean'
  small.make(c)
  c.encoder.pooling = pooling
  with pytest.raises(UserError, match='encoder.pooling.*choose mean or last'):
    small.make(c)
  if name == 'lightning':
    c.model.direction = 'bidirectional'
    small.make(c)


REDRAWN = [name for name in models.names()
           if 'redraw' in models.mixer(name).__dataclass_fields__]


@pytest.mark.parametrize('name, options', [
    ('sinkhorn', {'block_size': 8, 'sort_width': 6}),
    mixer_oracle.full('reformer', {'chunk_size': 4, 'num_buckets': 6}),
    *(mixer_oracle.full(name, {'num_features': 33, 'redraw': True})
      for name in REDRAWN)])
def test_noise_is_for_training_only(name, options):
  x, mask = mixer_oracle.ragged(40, 10, width=8)
  mixer = models.mixer(name)(**HEADS, **options)
  variables = mixer_oracle.init(mixer, x, mask)

  @functools.partial(jax.jit, static_argnums=1)
  def apply(seed, train):
    return mixer.apply(variables, x, mask, train=train,
                       rngs={'dropout': jax.random.key(seed)})

  assert np.abs(apply(0, True) - apply(1, True)).max() > 1e-4
  np.testing.assert_array_equal(apply(0, True), apply(0, True))
  np.testing.assert_array_equal(apply(0, False), apply(1, False))
  if 'redraw' in options:
    fixed = mixer.clone(redraw=False)
    small.assert_close(apply(0, False), jax.jit(functools.partial(
        fixed.apply, train=True))(variables, x, mask))
