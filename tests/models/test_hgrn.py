"""Compares HGRN with its recurrence, state by state, in float64."""

import jax
import numpy as np
import pytest

from lra.models.hgrn import Mixer
from lra.nn.norm import EPS
from tests.helpers import mixer_oracle, small
from tests.helpers import recurrent_oracle as parts
from tests.helpers.recurrent_oracle import dense, sigmoid


def _bounds(xp, table, layer):
  """Returns the softmax over layers, summed over the layers below `layer`."""
  e = xp.exp(table - table.max(0))
  return (e / e.sum(0))[:layer].sum(0)


def _oracle(layer=0, direction='bidirectional', share_theta=False, table=None):
  def oracle(xp, p, x, mask):
    low = _bounds(xp, p['lower']['bounds'] if table is None else table, layer)
    decay = low + (1 - low) * sigmoid(xp, dense(x, p['decay']))
    pair = parts.silu(xp, dense(x, p['input']))
    c = pair[..., 0::2] + 1j * pair[..., 1::2]
    total = 0
    for reverse in parts.passes(direction):
      own = reverse and not share_theta
      turn = xp.exp(1j * p['theta_reverse' if own else 'theta'])

      def step(h, decay, c):
        return (decay * turn * h + (1 - decay) * c,) * 2  # noqa: B023

      total = total + parts.loop(
          xp, step, 0 * c[:, 0], (decay, c), mask, reverse)
    y = xp.concatenate([total.real, total.imag], -1)
    y = parts.layer_norm(xp, y, EPS) * p['norm']['scale'] + p['norm']['bias']
    return dense(y * parts.silu(xp, dense(x, p['gate'])), p['output'])

  return oracle


@pytest.mark.every(4)
@pytest.mark.parametrize('options', [
    {'layer': 2}, {'direction': 'causal', 'layer': 1}, {},
    {'layer': 2, 'share_theta': True}], ids=str)
def test_equals_its_recurrence(options):
  """Tests padding after, between and before tokens."""
  x, mask = mixer_oracle.ragged(17, 9, 12, width=6)
  mask[0, 4:7] = mask[2, :3] = False
  mixer_oracle.check(Mixer(num_layers=3, **options), _oracle(**options),
                     x, mask, tolerance=3e-5)


def test_start():
  """The bound of layer k starts at k / K, and angles at 10000^(-2 d / D)."""
  x, mask = mixer_oracle.ragged(4, width=8)
  p = mixer_oracle.start(Mixer(layer=1, num_layers=4), x, mask)
  np.testing.assert_allclose(
      [_bounds(np, np.float64(p['lower']['bounds']), k) for k in range(4)],
      np.repeat([[0], [0.25], [0.5], [0.75]], 8, axis=1))
  np.testing.assert_allclose(
      p['theta'], 10_000.0 ** (-2 * np.arange(8) / 8), rtol=1e-6)
  np.testing.assert_array_equal(p['theta'], p['theta_reverse'])


def test_all_layers_of_an_encoder_share_one_table():
  """The encoder adds up the layers, with the lower bounds of one table."""
  c = small.config('hgrn', 'listops')
  c.encoder.update(num_layers=3, norm='none', block='none', pooling='mean',
                   positions='none', remat=True)
  p = small.make(c)
  params = small.random_params(p)
  tables = [name for name in map(jax.tree_util.keystr, dict(
      jax.tree_util.tree_leaves_with_path(params))) if 'bounds' in name]
  assert tables == ["['encoder']['mixer']['bounds']"]
  tokens = small.batch(p.objective.task, 3, 24)['tokens']
  got, _ = jax.jit(lambda params: p.model.encoder.apply(
      {'params': params}, tokens, train=False))(params['encoder'])
  exact = jax.tree.map(np.float64, params['encoder'])
  x = exact['embedding']['embedding'][tokens]
  for k in range(3):
    x = x + _oracle(k, table=exact['mixer']['bounds'])(
        np, exact[f'block_{k}']['mixer'], x, tokens > 0)
  small.assert_close(np.asarray(got)[tokens > 0], x[tokens > 0])
