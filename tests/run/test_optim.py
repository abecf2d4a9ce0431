"""Compares the schedule and the update rules with formulas in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.run import optim
from tests.helpers import small


@pytest.mark.parametrize('s,expected', [
    (1, 0.005 / 1000 / np.sqrt(1000)),
    (500, 0.005 * 0.5 / np.sqrt(1000)),
    (1000, 0.005 / np.sqrt(1000)),
    (4000, 0.005 / np.sqrt(4000))])
def test_schedule(s, expected):
  rate = optim.rsqrt(s - 1, base=0.005, warmup=1000)
  assert float(rate) == pytest.approx(expected, rel=1e-5)


def _sum(gradients, b):
  """Returns sum_i b^(s - i) g_i over the s gradients."""
  return sum(b**i * g for i, g in enumerate(reversed(gradients)))


def _adam(gradients, train, _):
  """Computes Adam's update in closed form (Kingma & Ba 2015, algorithm 1)."""
  b1, b2, s = train.b1, train.b2, len(gradients)
  m = (1 - b1) * _sum(gradients, b1) / (1 - b1**s)
  v = (1 - b2) * _sum([g * g for g in gradients], b2) / (1 - b2**s)
  return m / (np.sqrt(v) + train.eps)


def _lion(gradients, train, _):
  """Computes Lion's update (Chen et al. 2023, arXiv 2302.06675, algorithm 2).
  """
  *before, g = gradients
  m = (1 - train.b2) * _sum(before, train.b2)
  return np.sign(train.b1 * m + (1 - train.b1) * g)


def _sgd(gradients, _, momentum):
  """Computes heavy-ball momentum, not Nesterov's."""
  return _sum(gradients, momentum)


@pytest.mark.parametrize('b1, b2, eps, decay', [
    (0.9, 0.999, 1e-8, 0.1), (0.5, 0.98, 1e-3, 0.2)])
@pytest.mark.parametrize('name, direction, coupled', [
    ('adamw', _adam, False), ('adam', _adam, True), ('lion', _lion, False),
    ('sgd', _sgd, True)])
@jax.enable_x64(True)
def test_updates(name, direction, coupled, b1, b2, eps, decay):
  """Compares several updates with numpy; gradients vary so that b1, b2 matter.

  Only kernels decay. If `coupled`, decay is added to the gradient (L2), else
  to the update. The learning rate is large, so that updates are not lost in
  rounding; in float32 the error of 1 - b2**s alone is 1e-5.
  """
  config = small.config(
      'transformer', 'listops', b1=b1, b2=b2, eps=eps, weight_decay=decay,
      learning_rate=2.0, warmup_steps=0)
  config.optim.name, config.optim.momentum = name, b1
  tx = optim.make(config)
  want = {name: np.array([[3.0, -1.0], [0.5, 2.0]])
          for name in ('kernel', 'bias')}
  params = {name: jnp.asarray(w) for name, w in want.items()}
  state, seen = tx.init(params), {name: [] for name in params}
  for s, size in enumerate((1.0, -0.3, 0.02), 1):
    g = size * np.array([[1.0, -2.0], [0.5, 4.0]])
    grads = dict.fromkeys(params, jnp.asarray(g))
    updates, state = tx.update(grads, state, params)
    params = {name: params[name] + updates[name] for name in params}
    for name, w in want.items():
      decayed = decay * w * (name == 'kernel')
      seen[name].append(g + decayed * coupled)
      step = direction(seen[name], config.train, config.optim.momentum)
      want[name] = w - 2.0 / np.sqrt(s) * (step + decayed * (not coupled))
      small.assert_close(params[name], want[name], 1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['adamw', 'muon', 'sgd'])
def test_gradients_side_by_side_update_alike(name):
  """The update and state computed for a GPU equal the CPU's, bit for bit."""
  config = small.config('transformer', 'listops', weight_decay=0.1)
  config.optim.name, config.optim.clip_norm = name, 1.0
  made = small.make(config)
  params = small.random_params(made)
  grads = jax.tree.map(lambda w: jnp.cos(3 * w), params)

  def updated(platform):
    tx = optim.make(config)

    def update(grads, state, params):
      grads, norm = optim.gradient_norm(config, grads)
      return tx.update(grads, state, params, norm=norm)

    with kernels.target(platform):
      return jax.jit(update)(grads, tx.init(params), params)

  jax.tree.map(np.testing.assert_array_equal, updated('gpu'), updated('cpu'))


def test_what_decays():
  p = small.make(small.config('transformer', 'listops'))
  mask = optim.decay_mask(p.state_shape.params)
  decays = {jax.tree_util.keystr(k): v
            for k, v in jax.tree_util.tree_leaves_with_path(mask)}
  assert all(decays[k] == ('kernel' in k or k.endswith(
      ("['embedding']['embedding']", "['positions']"))) for k in decays)
