"""The schedule and one AdamW update against their formulas in numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

import small
from lra import optim


@pytest.mark.parametrize('s,expected', [
    (1, 0.005 / 1000 / np.sqrt(1000)),
    (500, 0.005 * 0.5 / np.sqrt(1000)),
    (1000, 0.005 / np.sqrt(1000)),
    (4000, 0.005 / np.sqrt(4000))])
def test_schedule(s, expected):
  rate = optim.learning_rate(s - 1, base=0.005, warmup=1000)
  assert float(rate) == pytest.approx(expected, rel=1e-5)


def test_every_setting_of_adamw_takes_part():
  """Gradients that vary, and no setting at its usual value."""
  settings = dict(b1=0.8, b2=0.98, eps=1e-3, weight_decay=0.2,
                  learning_rate=2.0, warmup_steps=0)
  tx = optim.make(small.config('transformer', 'listops', **settings).train)
  w = np.array([[3.0, -1.0], [0.5, 2.0]])
  params = {'kernel': jnp.asarray(w, jnp.float32)}
  state = tx.init(params)
  m = v = np.zeros((2, 2))
  for s, size in enumerate((1.0, -0.3, 0.02), 1):
    g = size * np.array([[1.0, -2.0], [0.5, 4.0]])
    updates, state = tx.update(
        {'kernel': jnp.asarray(g, jnp.float32)}, state, params)
    params = {'kernel': params['kernel'] + updates['kernel']}
    m, v = 0.8 * m + 0.2 * g, 0.98 * v + 0.02 * g * g
    w = w - 2.0 / np.sqrt(s) * (m / (1 - 0.8**s) / (
        np.sqrt(v / (1 - 0.98**s)) + 1e-3) + 0.2 * w)
    small.assert_close(params['kernel'], w)


def test_adamw_updates():
  train = small.config('transformer', 'listops').train
  tx = optim.make(train)
  params = {'kernel': jnp.full((2, 2), 3.0), 'bias': jnp.full((2, 2), 3.0)}
  grads = {'kernel': jnp.array([[1.0, -2.0], [0.5, 4.0]]),
           'bias': jnp.ones((2, 2))}
  state = tx.init(params)
  m = v = np.zeros((2, 2))
  w = np.full((2, 2), 3.0)
  for s in (1, 2, 3):
    updates, state = tx.update(grads, state, params)
    params = {k: params[k] + updates[k] for k in params}
    g = np.asarray(grads['kernel'], np.float64)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    rate = 0.005 * (s / 1000) / np.sqrt(1000)
    w = w - rate * (m / (1 - 0.9**s) / (
        np.sqrt(v / (1 - 0.999**s)) + 1e-8) + 0.1 * w)
    np.testing.assert_allclose(params['kernel'], w, rtol=1e-5)
  # Adam alone moves a constant gradient by the rate: no decay of the bias.
  moved = sum(0.005 * (s / 1000) / np.sqrt(1000) for s in (1, 2, 3))
  np.testing.assert_allclose(params['bias'], 3.0 - moved, rtol=1e-6)


def test_what_decays():
  p = small.make(small.config('transformer', 'listops'))
  import jax
  mask = optim.decay_mask(p.init().params)
  decays = {jax.tree_util.keystr(k): v
            for k, v in jax.tree_util.tree_leaves_with_path(mask)}
  assert all(decays[k] == ('kernel' in k or k.endswith(
      ("['embedding']['embedding']", "['positions']"))) for k in decays)
