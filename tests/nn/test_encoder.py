"""Tests the shared encoder: pooling, padding, dropout, parameters, heads."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.core.errors import UserError
from lra.nn import encoder
from lra.nn.dropout import Dropout
from lra.nn.mixer import MixerTraits, traits_of
from lra.run import program
from lra.schema import fields
from tests.helpers import encoder_reference, small

POOLING = fields.choices(fields.FIELDS['encoder.pooling'])


@pytest.mark.parametrize('width', [8, 7])
def test_sinusoidal_positions_are_the_papers(width):
  """Compares with sines, then cosines, of p / 10000^(2i / D)."""
  table = encoder.sinusoidal_positions(50, width)
  half = -(-width // 2)
  for p in (0, 1, 49):
    for i in range(half):
      angle = p / 10_000 ** (2 * i / width)
      assert table[p, i] == pytest.approx(np.sin(angle), abs=1e-6)
      if half + i < width:
        assert table[p, half + i] == pytest.approx(np.cos(angle), abs=1e-6)
  assert table.shape == (50, width) and table.dtype == np.float32


def _apply(c, tokens):
  p = small.make(c)
  return jax.jit(lambda params: p.model.apply(
      {'params': params}, tokens, train=False))(small.random_params(p))


CASES = {
    'cls': ('listops', dict(num_layers=2)),
    'cls with a position': ('listops', dict(
        cls_has_position=True, positions='sinusoidal', remat=True)),
    'mean': ('listops', dict(pooling='mean', positions='sinusoidal')),
    'last': ('listops', dict(pooling='last', positions='none')),
    'pairs concat': ('retrieval', dict(head='concat', pooling='mean')),
    'pairs nli': ('retrieval', dict(head='nli', cls_has_position=True)),
    'post scale': ('listops', dict(
        norm='scale', norm_place='post', pooling='mean')),
    'rms glu': ('listops', dict(norm='rms', block='glu')),
    'no second half': ('listops', dict(
        block='none', num_layers=2, norm_place='post')),
    'values without norms': ('image', dict(
        inputs='values', norm='none', pooling='mean')),
}


def _reference_case(task, fields):
  """Returns program, nonzero parameters, ids and the float64 reference."""
  c = small.config('transformer', task)
  c.encoder.update(fields)
  p = small.make(c)
  params = small.random_params(p)
  tokens = small.batch(p.objective.task, 3, 24)['tokens']
  table = encoder.sinusoidal_positions(
      24 + (c.encoder.pooling == 'cls' and c.encoder.cls_has_position),
      c.encoder.width)

  def reference(params, **options):
    exact = jax.tree.map(np.float64, params)
    return encoder_reference.logits(
        exact, tokens, c.encoder, np.float64(table), **options)

  return p, params, tokens, reference


@pytest.mark.every(5)
@pytest.mark.parametrize('case', CASES)
def test_encoder_and_head_equal_float64(case):
  """Logits and directional derivatives by the parameters equal float64."""
  p, params, tokens, reference = _reference_case(*CASES[case])
  classes = p.objective.task.num_classes
  cotangent = np.random.default_rng(1).normal(size=(3, classes))

  def loss(params):
    logits = p.model.apply({'params': params}, tokens, train=False)
    return jnp.sum(logits * np.float32(cotangent)), logits

  (_, logits), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
  small.assert_close(logits, reference(params))
  grads, exact = jax.device_get(grads), jax.tree.map(np.float64, params)
  size = np.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
  for seed in range(5):
    rng = np.random.default_rng(seed)
    along = jax.tree.map(lambda w: rng.normal(size=w.shape), exact)
    here, there = (
        (reference(jax.tree.map(lambda w, d: w + h * d, exact, along))
         * cotangent).sum() for h in (1e-6, -1e-6))
    got = sum((g * d).sum() for g, d in zip(
        *map(jax.tree.leaves, (grads, along)), strict=True))
    assert abs(got - (here - there) / 2e-6) <= 3e-5 * size


@pytest.mark.parametrize('model', ['transformer', 'super'])
def test_patches_are_positions(model):
  """Patches equal a dense layer on squares that are cut out one by one."""
  c = small.config(model, 'image')
  c.encoder.update(dict(inputs='patches', pooling='mean'))
  c.seq_len = 0
  p = small.make(c)
  params = small.random_params(p)
  assert params['encoder']['positions'].shape == (64, 16)
  assert p.experiment.length == 64
  ids = np.random.default_rng(0).integers(1, 257, (2, 1024)).astype(np.int16)
  squares = np.stack([
      image[row:row + 4, column:column + 4].reshape(-1)
      for image in ids.reshape(2, 32, 32)
      for row in range(0, 32, 4) for column in range(0, 32, 4)])
  values = (2 * (squares - 1) / 255 - 1).reshape(2, 64, 16).astype(np.float32)
  encoder_of = p.model.encoder
  got, mask = encoder_of.apply(
      {'params': params['encoder']}, ids, train=False)
  want, _ = encoder_of.clone(inputs='ids').apply(
      {'params': params['encoder']}, values, train=False)
  assert mask.shape == (2, 64) and mask.all()
  small.assert_close(got, want)


DROPOUT = ('embedding', 'mixer', 'hidden', 'mlp')  # in order of their calls


def _with_dropout_at(site, p, params, tokens):
  """Returns training logits with a known dropout at one place, none elsewhere.

  Returns:
    The logits, and the factor of the array at that place.
  """
  factors, shapes = [], []

  def intercept(apply, args, kwargs, context):
    module = context.module
    if not isinstance(module, Dropout):
      return apply(*args, **kwargs)
    assert module.rate == 0.5 and kwargs['deterministic'] is False
    shapes.append(args[0].shape)
    keep = np.random.default_rng(2).random(args[0].shape) < 0.5
    factors.append(2.0 * keep if DROPOUT[len(factors)] == site else 1.0)
    return args[0] * jnp.asarray(factors[-1], jnp.float32)

  with nn.intercept_methods(intercept):
    logits = jax.jit(lambda params: p.model.apply(
        {'params': params}, tokens, train=True,
        rngs={'dropout': jax.random.key(0)}))(params)
  assert len(factors) == len(DROPOUT)
  return logits, factors[DROPOUT.index(site)]


@pytest.mark.every(2, 1)
@pytest.mark.parametrize('site', DROPOUT)
def test_dropout_acts_on(site):
  """Dropout acts on the outputs of embedding, mixer and both MLP layers."""
  p, params, tokens, reference = _reference_case(
      'listops', dict(dropout=0.5, pooling='mean'))
  got, factor = _with_dropout_at(site, p, params, tokens)
  want = reference(params, drop=lambda place, x: (
      x * factor if place == site else x))
  small.assert_close(got, want)
  assert np.linalg.norm(want - reference(params)) > 1e-2


@pytest.mark.every(5)
@pytest.mark.parametrize('pooling', POOLING)
@pytest.mark.parametrize('model', ['transformer', 'linear_transformer'])
def test_more_padding_never_changes_scores(model, pooling):
  c = small.config(model, 'listops')
  c.encoder.pooling = pooling
  # Sinusoidal: a learned table would have another size at another length.
  c.encoder.positions = 'sinusoidal'
  tokens = small.batch(small.tasks.get('listops'), 4, 24)['tokens']
  longer = np.pad(tokens, ((0, 0), (0, 17)))
  c2 = c.copy_and_resolve_references()
  c2.seq_len = 41
  small.assert_close(_apply(c, tokens), _apply(c2, longer))


def test_unmasked_padding_takes_part():
  p, params, tokens, reference = _reference_case(
      'listops', dict(pooling='mean'))
  p.config.mask_padding = False
  got = _apply(p.config, tokens)
  want = reference(params, mask_padding=False)
  small.assert_close(got, want)
  assert np.linalg.norm(want - reference(params)) > 1e-3


@pytest.mark.parametrize('head,features', [('concat', 2), ('nli', 4)])
def test_parameters_of_the_retrieval_transformer(head, features):
  """The count of SimpleTRON's retrieval model equals a sum by hand."""
  import importlib
  c = importlib.import_module('lra.configs.transformer').get_config('retrieval')
  c.encoder.head = head
  shapes = small.make(c).state_shape.params
  total = sum(np.prod(x.shape) for x in jax.tree.leaves(shapes))
  D, F, L, V = 128, 512, 4000, 257
  block = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 2 * 2 * D
  joined = features * D
  head_size = (joined * F + F) + (F * F // 2 + F // 2) + (F // 2 * 2 + 2)
  assert total == V * D + D + L * D + 4 * block + 2 * D + head_size


def _encoder(call, declared=None, **fields):
  """Returns an encoder whose mixers compute call(mixer, x, mask, ...)."""
  class Given(nn.Module):
    layer: int
    num_layers: int
    full_length: int
    dropout: float
    dtype: jnp.dtype
    traits = declared or MixerTraits()

    def __call__(self, x, mask, *, train, **more):
      return call(self, x, mask, **more)

  return encoder.Encoder(
      **dict(dict(
          mixer=Given, vocab_size=9, num_layers=3, width=4, mlp_width=8,
          dropout=0.0, positions='learned', prepend_cls=False,
          cls_has_position=False,
          embedding_std=1.0, remat=False, mask_padding=True,
          dtype=jnp.float32), **fields))


def _recorder(seen, **fields):
  """Returns an encoder whose mixers append layer and mask to `seen`."""
  def call(mixer, x, mask):
    seen.append((mixer.layer, mixer.num_layers, mixer.full_length,
                 np.asarray(mask).all()))
    return x

  return _encoder(call, **fields)


@pytest.mark.full
def test_each_mixer_is_told_its_place():
  seen = []
  _recorder(seen).init(
      jax.random.key(0), jnp.ones((2, 5), jnp.int32), train=False)
  assert [place for *place, _ in seen] == [[0, 3, 5], [1, 3, 5], [2, 3, 5]]


def test_a_mixer_that_makes_another_shape_is_named():
  def narrow(mixer, x, mask):
    return x[..., :1]  # which adding would broadcast

  with pytest.raises(UserError, match=rf'{__name__} .*2, 5, 1.*2, 5, 4'):
    jax.eval_shape(lambda: _encoder(narrow).init(
        jax.random.key(0), jnp.ones((2, 5), jnp.int32), train=False))


@pytest.mark.full
def test_continuous_values_are_embedded_and_all_seen():
  """A dense layer embeds values; zeros and negatives are not padding."""
  seen, values = [], np.float32([[[0.0, 0.0], [-1.0, 2.0], [3.0, -4.0]]])
  module = _recorder(seen, num_layers=1)
  variables = module.init(jax.random.key(0), values, train=False)
  x, mask = module.apply(variables, values, train=False)
  assert x.shape == (1, 3, 4) and np.asarray(mask).all()
  assert all(everything for *_, everything in seen)
  kernel = variables['params']['embedding']['kernel']
  assert kernel.shape == (2, 4)
  twice, _ = module.apply(variables, 2 * values, train=False)
  assert not np.allclose(x, twice)


def test_a_mask_may_be_given():
  seen = []
  values = np.zeros((1, 3, 2), np.float32)
  mask = np.array([[True, True, False]])
  _recorder(seen, num_layers=1).init(
      jax.random.key(0), values, mask, train=False)
  assert not seen[0][-1]


def test_names_that_weight_transfer_relies_on():
  p = small.make(small.config('transformer', 'listops'))
  layers = {name.rpartition('/')[0] for name in program.sizes(
      p.state_shape.params)}
  block = 'encoder/block_0/'
  assert layers == {
      'encoder', 'encoder/embedding', 'encoder/norm', block + 'norm_mixer',
      block + 'norm_mlp', block + 'mlp/up', block + 'mlp/down',
      *(f'{block}mixer/{name}' for name in ('query', 'key', 'value', 'out')),
      'head/hidden_0', 'head/logits'}


def test_a_convolution_is_before_each_mixer_where_it_is_asked_for():
  names = []
  for width in (0, 4):
    c = small.config('simpletron', 'listops')
    c.encoder.conv_width = width
    names.append(set(program.sizes(small.make(c).state_shape.params)))
  assert names[1] - names[0] == {'encoder/block_0/conv/kernel'}


@pytest.mark.full
@pytest.mark.parametrize('model, pooling, masks', [
    ('linear_transformer', 'cls', True), ('simpletron', 'mean', False),
    ('lightning', 'last', True)])
def test_tokens_filled_up_change_nothing(monkeypatch, model, pooling, masks):
  """Padding 27 or 28 tokens to 32 changes no logit or gradient."""
  c = small.config(model, 'listops')
  c.encoder.pooling, c.mask_padding, c.seq_len = pooling, masks, 27
  c.encoder.dropout, c.model.kernel = 0.5, 'xla'
  c.encoder.num_layers = 1
  p = small.make(c)
  tokens = small.batch(p.objective.task, 3, 27)['tokens']

  def run():
    def loss(params):
      logits = p.model.apply({'params': params}, tokens, train=True,
                             rngs={'dropout': jax.random.key(0)})
      return jnp.sum(jnp.sin(logits)), logits

    with kernels.target('gpu', interpret=True):
      return jax.jit(jax.grad(loss, has_aux=True))(small.random_params(p))

  filled = run()
  monkeypatch.setattr(encoder, 'ROWS', 1)
  small.assert_close(filled, run())


def test_a_mixer_that_gates_the_stream_gets_it_before_the_norm():
  """The mixer gets x before the norm; its result is added without dropout."""
  def back(mixer, x, mask, residual):
    assert mixer.dropout == 0.5
    return 2 - residual  # x before the norm is taken out

  module = _encoder(back, MixerTraits(gates_residual=True), num_layers=1,
                    dropout=0.5, norm='none', block='none')
  ids = jnp.ones((2, 5), jnp.int32)

  @jax.jit
  def run(key):
    variables = module.init(key, ids, train=False)
    return module.apply(variables, ids, train=True, rngs={'dropout': key})

  x, _ = run(jax.random.key(0))
  np.testing.assert_allclose(x, 2, rtol=1e-6)


@pytest.mark.parametrize('model', [
    'transformer', 'linear_transformer', 'fnet', 'transformer_rotary',
    'transformer_alibi', 'transformer_t5', 'conv_mixer', 'gla', 's4d', 'lru'])
def test_every_mixer_knows_the_order_of_tokens_if_positions_are_as_needed(
    model):
  """The mean over tokens changes if two are exchanged, only by the mixer if it
  is `ordered`, else by the positions of `sinusoidal`.
  """
  made = {}
  for positions in ('needed', 'none', 'sinusoidal'):
    c = small.config(model, 'listops')
    c.encoder.update(positions=positions, pooling='mean', num_layers=2)
    p = small.make(c)
    params = small.random_params(p)
    tokens = jnp.asarray(
        np.random.default_rng(0).integers(1, 15, (2, 24)), jnp.int16)
    made[positions] = np.array([p.model.apply(
        {'params': params}, some, train=False) for some in (
            tokens, tokens.at[:, [3, 11]].set(tokens[:, [11, 3]]))])
  before, after = made['needed']
  assert np.abs(before - after).max() > 1e-4 * np.abs(before).max()
  ordered = traits_of(
      small.make(c).model.encoder.mixer(
          dtype=jnp.float32, layer=0, num_layers=1, full_length=24,
          dropout=0.0)).ordered
  np.testing.assert_array_equal(
      made['needed'], made['none' if ordered else 'sinusoidal'])
  assert ordered == (model not in ('transformer', 'linear_transformer', 'fnet'))
