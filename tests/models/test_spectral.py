"""Learned spectral densities: samples, kernels in closed form, and rates."""


import jax
import numpy as np
import pytest

from lra import models
from tests.helpers import mixer_oracle

NAMES = [f'{density}_{feature}'
         for density in ('gmm', 'fastfood', 'generative')
         for feature in ('rks', 'prf')]


def _mixer(name, **options):
  return models.mixer(name)(num_heads=2, qkv_width=8, **options)


def _hadamard(width):
  h = np.ones((1, 1))
  while len(h) < width:
    h = np.block([[h, h], [h, -h]])
  return h


def _frequencies(xp, name, params, constants):
  """Returns omega [H, F', Dh] and weights [H, F'] by the paper's equations."""
  heads, width = params['query']['kernel'].shape[1:]
  if name.startswith('gmm'):
    noise = constants['noise']
    omega = (params['mean'][:, :, None]
             + xp.exp(params['log_std'])[:, :, None] * noise)
    logit = params['logit']
    pi = xp.exp(logit) / xp.exp(logit).sum(1, keepdims=True)
    samples = noise.shape[2]
    weight = xp.stack([pi] * samples, -1) / samples
    return omega.reshape(heads, -1, width), weight.reshape(heads, -1)
  if name.startswith('fastfood'):
    g, s = params['scales']
    size = g.shape[-1]
    h, eye = _hadamard(size), np.eye(size)
    rows = []
    for i in range(heads):
      for n in range(g.shape[1]):
        p = eye[constants['permutation'][i, n]]
        b = params['signs'][i, n]
        rows.append((s[i, n][:, None] * h) @ (g[i, n][:, None] * p) @ (
            h * b) / size**0.5)
    omega = xp.stack(rows).reshape(heads, -1, size)[..., :width]
    return omega, np.full(omega.shape[:2], 1 / omega.shape[1])
  y = constants['noise']
  for i in range(2):
    dense, norm = params[f'generator_{i}'], params[f'norm_{i}']
    y = y @ dense['kernel'] + dense['bias']
    y = (y - y.mean(0)) / xp.sqrt(((y - y.mean(0))**2).mean(0) + 1e-5)
    y = y * norm['scale'] + norm['bias']
    y = xp.where(y > 0, y, 0.01 * y)
  dense = params['generator_out']
  omega = xp.stack([xp.tanh(y @ dense['kernel'] + dense['bias'])] * heads)
  return omega, np.full(omega.shape[:2], 1 / omega.shape[1])


def _features(xp, name, y, omega, weight):
  angle = xp.einsum('blhd,hfd->blhf', y, omega)
  root = xp.sqrt(weight)
  if name.endswith('prf'):
    return root * xp.exp(angle - (y**2).sum(-1)[..., None])
  one = xp.ones(angle.shape[:-1] + (1,))
  return xp.concatenate([root * xp.cos(angle), root * xp.sin(angle), one], -1)


def _attend(xp, params, x, mask, kernel):
  """Computes attention with positive weights kernel(q, k), [B, H, L, S]."""
  q, k, v = mixer_oracle.qkv(xp, x, params)
  scale = q.shape[-1]**-0.25
  weights = kernel(scale * q, scale * k) * mask[:, None, None]
  total = weights.sum(-1, keepdims=True)
  weights = weights / xp.where(total > 0, total, 1)
  return mixer_oracle.merge(xp, mixer_oracle.weigh(xp, weights, v),
                            params['out'])


@pytest.mark.full
@pytest.mark.parametrize('name', NAMES)
def test_equals_the_estimate_of_its_frequencies(name):
  x, mask = mixer_oracle.ragged(43, 20, 0, width=16)
  mixer = _mixer(name, num_features=17)
  variables = mixer_oracle.init(mixer, x, mask)
  constants = jax.tree.map(np.asarray, variables['constants'])

  def oracle(xp, params, x, mask):
    omega, weight = _frequencies(xp, name, params, constants)
    limit = 17 if name.endswith('prf') else 7
    if not name.startswith('gmm'):  # the last block may be cut
      omega, weight = omega[:, :limit], weight[:, :limit]
      weight = np.full(weight.shape, 1 / omega.shape[1])
    return _attend(xp, params, x, mask, lambda q, k: xp.einsum(
        'blhm,bshm->bhls', *(_features(xp, name, y, omega, weight)
                             for y in (q, k))))

  mixer_oracle.check(mixer, oracle, x, mask, variables=variables)


def _closed_form(name, params):
  """Returns the kernel of infinitely many features, [B, H, L, S]."""

  def kernel(q, k):
    q, k = (np.moveaxis(y, 2, 1) for y in (q, k))
    if name.startswith('gmm'):
      pi = np.exp(params['logit'])
      pi = pi / pi.sum(1, keepdims=True)
      mean, std = params['mean'], np.exp(params['log_std'])
    else:  # FastFood starts as the Gaussian kernel
      pi, mean, std = np.ones((2, 1)), np.zeros((2, 1, 4)), np.ones((2, 1, 4))
    total = 1.0 if name.endswith('rks') else 0.0
    sign = -1 if name.endswith('rks') else 1
    z = q[:, :, :, None] + sign * k[:, :, None]  # [B, H, L, S, Dh]
    for c in range(pi.shape[1]):
      spread = ((z * std[None, :, c, None, None])**2).sum(-1) / 2
      shift = (z * mean[None, :, c, None, None]).sum(-1)
      value = (np.exp(-spread) * np.cos(shift) if sign < 0 else
               np.exp(shift + spread - (q**2).sum(-1)[..., None]
                      - (k**2).sum(-1)[:, :, None]))
      total = total + pi[None, :, c, None, None] * value
    return total

  return kernel


def _samples(name, num_features, params, x, mask, count):
  """Returns outputs [count, B, L, D] for independent frequencies."""
  mixer = _mixer(name, num_features=num_features, redraw=True)
  constants = mixer_oracle.init(mixer, x, mask)['constants']

  def one(key):
    if name.startswith('fastfood'):  # its parameters are its random numbers
      variables = mixer.init(key, x, mask, train=False)
      own = {k: variables['params'][k] for k in ('scales', 'signs')}
      variables['params'] = {**params, **own}
    else:
      variables = {'params': params, 'constants': constants}
    return mixer.apply(variables, x, mask, train=True, rngs={'dropout': key})

  keys = jax.random.split(jax.random.key(3), count)
  return np.asarray(mixer_oracle.quick_jit(jax.vmap(one))(keys), np.float64)


@pytest.mark.full
@pytest.mark.parametrize('name', [
    'gmm_rks', *map(mixer_oracle.full, NAMES[1:])])
def test_error_falls_as_1_over_root_m(name):
  """Compares with the closed form, or with very many features without one."""
  x, mask = mixer_oracle.ragged(24, 10, width=16)
  x *= 0.25
  params = mixer_oracle.init(_mixer(name, num_features=33), x, mask)['params']
  if name.startswith('generative'):
    want = _samples(name, 8193, params, x, mask, 1)[0]
  else:
    exact = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    want = _attend(np, exact, x.astype(np.float64), mask,
                   _closed_form(name, exact))
  errors = []
  for num_features in (33, 513):
    got = _samples(name, num_features, params, x, mask, 40)
    errors.append(np.sqrt(np.mean((got - want)[:, mask]**2)))
  print(errors, np.abs(want[mask]).max())
  assert 3 < errors[0] / errors[1] < 5.5  # sqrt(512 / 32) = 4
  assert errors[1] < 0.05 * np.abs(want[mask]).max()
