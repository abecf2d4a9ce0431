"""Compares RWKV-7 with its recurrence, token by token, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.models.rwkv7 import Mixer
from lra.nn.encoder import Encoder
from tests.helpers import mixer_oracle
from tests.helpers import recurrent_oracle as parts
from tests.helpers.recurrent_oracle import sigmoid

HEADS = 2


def _one_way(xp, p, x, mask, reverse, first=None):
  """Returns outputs before the projection, and values, both [B, L, D]."""
  x = xp.where(mask[..., None], x, 0)
  nothing = xp.zeros_like(x[:, :1])
  before = xp.concatenate(
      [x[:, 1:], nothing] if reverse else [nothing, x[:, :-1]], 1)
  at = {n: x + (before - x) * p[f'share_{n}'] for n in 'rwkvag'}
  r, k, v = (at[n] @ p[n]['kernel'] for n in 'rkv')

  def low(name, function):
    y = function(at[name] @ p[f'{name}_down']['kernel'])
    y = y @ p[f'{name}_up']['kernel']
    return y + p[f'{name}_up']['bias'] if name != 'g' else y

  w = xp.exp(-np.exp(-0.5) * sigmoid(xp, low('w', xp.tanh)))
  a = sigmoid(xp, low('a', lambda y: y))
  g = low('g', lambda y: sigmoid(xp, y))
  values = v
  if first is not None:
    v = v + (first - v) * sigmoid(xp, low('v', lambda y: y))

  def heads(y):
    return y.reshape(*y.shape[:2], HEADS, -1)

  kappa = heads(k * p['removal'])
  kappa = kappa / xp.sqrt((kappa**2).sum(-1, keepdims=True) + 1e-24)
  k = k * (1 + (a - 1) * p['replacement'])
  r, k, v, w, a, rho = map(heads, (r, k, v, w, a, p['bonus'][None, None]))

  def step(state, r, w, k, v, kappa, a):
    held = xp.einsum('bhn,bhne->bhe', kappa, state)
    state = (w[..., None] * state
             - xp.einsum('bhn,bhe->bhne', kappa * a, held)
             + xp.einsum('bhn,bhe->bhne', k, v))
    return state, xp.einsum('bhn,bhne->bhe', r, state)

  N = r.shape[-1]
  o = parts.loop(
      xp, step, xp.zeros((len(x), HEADS, N, N)), (r, w, k, v, kappa, a), mask,
      reverse)
  o = o - o.mean(-1, keepdims=True)
  o = o / xp.sqrt((o**2).mean(-1, keepdims=True) + 1e-5 * N)
  o = o.reshape(x.shape) * p['norm']['scale'] + p['norm']['bias']
  bonus = (r * k * rho).sum(-1, keepdims=True) * v
  return (o + bonus.reshape(x.shape)) * g, values


def _mix(xp, p, x, mask, direction, firsts=(None, None)):
  found = [_one_way(xp, p['pass'], x, mask, reverse, first)
           for reverse, first in zip(parts.passes(direction), firsts,
                                     strict=False)]
  return sum(o for o, _ in found) @ p['out']['kernel'], [v for _, v in found]


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('direction', ['bidirectional', 'causal'])
def test_equals_its_recurrence(direction):
  def oracle(xp, p, x, mask):
    return _mix(xp, p, x, mask, direction)[0]

  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, 5] = False
  mixer_oracle.check(Mixer(num_heads=HEADS, direction=direction), oracle, x,
                     mask, tolerance=2e-5)


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('direction', ['bidirectional', 'causal'])
def test_a_second_layer_mixes_in_the_values_of_the_first(direction):
  x, mask = mixer_oracle.ragged(11, 6, width=12)
  first, second = (
      Mixer(num_heads=HEADS, direction=direction, layer=i, num_layers=2)
      for i in (0, 1))
  variables = [mixer_oracle.init(m, x, mask, seed=i)
               for i, m in enumerate((first, second))]

  @mixer_oracle.quick_jit
  def run(variables):
    y, values = first.apply(variables[0], x, mask, train=False, share=True)
    z, same = second.apply(variables[1], y, mask, train=False, values=values,
                           share=True)
    return values, z, same

  values, z, same = run(variables)
  assert len(values) == len(parts.passes(direction))
  for u, v in zip(values, same, strict=True):
    np.testing.assert_array_equal(u, v)
  exact = [jax.tree.map(lambda a: np.asarray(a, np.float64), v['params'])
           for v in variables]
  want_y, firsts = _mix(np, exact[0], x.astype(np.float64), mask, direction)
  want_z, _ = _mix(np, exact[1], want_y, mask, direction, firsts)
  mixer_oracle.close(np.asarray(z)[mask], want_z[mask], 2e-5, 'outputs')


def _watched(direction, remat=False):
  """Returns the values that each of three blocks received and returned.

  With `remat` these have a shape and a dtype only.
  """
  seen = []

  class Watched(Mixer):

    def __call__(self, *args, values=(), **kwargs):
      out = super().__call__(*args, values=values, **kwargs)
      seen.append((values, out[1]))
      return out

  encoder = Encoder(
      mixer=lambda full_length, **kwargs: Watched(
          num_heads=2, direction=direction, **kwargs),
      vocab_size=7, num_layers=3, width=8, mlp_width=8, dropout=0.0,
      positions='none', prepend_cls=False, cls_has_position=False,
      embedding_std=1.0, remat=remat, mask_padding=True, dtype=jnp.float32)
  tokens = jnp.arange(10).reshape(2, 5) % 7

  def run(key):
    encoder.init(key, tokens, train=False)
    return () if remat else seen

  values = mixer_oracle.quick_jit(run)(jax.random.key(0))
  return values or seen


def test_an_encoder_hands_the_values_on():
  """The third block reads the values of the first, not of the second."""
  (none, first), (of_first, _), (still_first, _) = _watched('bidirectional')
  assert none == () and len(first) == 2
  np.testing.assert_array_equal(of_first, first)
  np.testing.assert_array_equal(still_first, first)


def test_an_encoder_turns_the_values_of_an_alternating_layer():
  (_, [first]), ([turned], _), ([again], _) = _watched('alternating')
  np.testing.assert_array_equal(turned, first[:, ::-1])
  np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize('layer, left', [(0, 1), (1, 0.75), (3, 0.25)])
def test_start_of_each_layer(layer, left):
  """Shares of the token before and decays equal the authors' formulas."""
  p = mixer_oracle.start(Mixer(num_heads=1, layer=layer, num_layers=4),
                         *mixer_oracle.ragged(3, width=64))['pass']
  for name, power in zip('rwkvag', (0.2, 0.9, 0.7, 0.7, 0.9, 0.2), strict=True):
    np.testing.assert_allclose(
        p[f'share_{name}'], 1 - (np.arange(64) / 64)**(power * left), atol=1e-6)
  along = np.arange(64) / 63
  zigzag = 2 * along - 1
  np.testing.assert_allclose(
      p['w_up']['bias'], -5.5 + 6 * along**(1 + (layer / 3)**0.3)
      + 2.5 * zigzag * abs(zigzag), atol=1e-5)


def test_start_of_the_decays():
  """Initial values of the second of four layers equal the authors'.

  Decays start from -8 (keeps its state) to 3 (loses it fast).
  """
  x, mask = mixer_oracle.ragged(3, width=64)
  mixer = Mixer(num_heads=1, layer=1, num_layers=4)
  p = mixer_oracle.start(mixer, x, mask)['pass']
  bias = np.asarray(p['w_up']['bias'])
  np.testing.assert_allclose(bias[[0, -1]], [-8.0, 3.0], atol=1e-5)
  np.testing.assert_allclose(p['norm']['scale'], 0.5**0.7, rtol=1e-6)
  np.testing.assert_allclose(p['share_k'][0], 1)
