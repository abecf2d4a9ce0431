"""Compares Nystromformer with its equation in float64, sequence by sequence."""

import functools

import jax
import numpy as np
import pytest

from lra.models.nystromformer import Mixer
from tests.helpers import mixer_oracle


def _softmax(xp, logits):
  e = xp.exp(logits - logits.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def _newton(a, steps, norm):
  z = a.swapaxes(1, 2) / norm
  eye = np.eye(a.shape[-1])
  for _ in range(steps):
    az = a @ z
    z = z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az))) / 4
  return z


def _matrices(xp, q, k, tokens, most):
  """Returns the three softmax matrices of one sequence; q, k [H, n, Dh]."""
  m = min(most, len(tokens))
  ends = -(-np.arange(m + 1) * len(tokens) // m)  # ceil
  mean = np.zeros((m, len(tokens)))
  for row, i, j in zip(mean, ends[:-1], ends[1:], strict=True):
    row[i:j] = 1 / (j - i)
  s = q.shape[-1]**0.5
  return [_softmax(xp, left @ right.swapaxes(1, 2) / s) for left, right in (
      (q, mean @ k), (mean @ q, mean @ k), (mean @ q, k))]


def oracle(xp, params, x, mask, most=8, init='exact', steps=6, invert=None):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  found = []
  for b in range(len(x)):
    tokens = np.flatnonzero(mask[b])
    if len(tokens):
      of_heads = [y[b, tokens].swapaxes(0, 1) for y in (q, k, v)]
      found.append((b, tokens, of_heads[2],
                    _matrices(xp, *of_heads[:2], tokens, most)))
  largest = functools.reduce(
      xp.maximum, [a.sum(1).max() for *_, (_, a, _) in found])
  o = {b: 0 * v[b] for b in range(len(x))}
  for b, tokens, values, (f, a, r) in found:
    norm = (largest if init == 'original' else
            a.sum(1).max(-1)[:, None, None])
    mixed = f @ (invert(a) if invert else _newton(a, steps, norm)) @ r
    if 'conv' in params:
      taps = params['conv'][..., 0]
      gap = tokens[None, :] - tokens[:, None] + len(taps) // 2
      inside = (gap >= 0) & (gap < len(taps))
      mixed = mixed + xp.where(
          inside, xp.moveaxis(taps[np.clip(gap, 0, len(taps) - 1)], -1, 0), 0)
    place = np.eye(x.shape[1])[:, tokens]
    o[b] = (place @ (mixed @ values)).swapaxes(0, 1)
  return mixer_oracle.merge(xp, xp.stack(list(o.values())), params['out'])


@pytest.mark.every(2)
@pytest.mark.parametrize('init, conv_width, steps', [
    ('exact', 5, 3), ('original', 0, 6), mixer_oracle.full('exact', 4, 6)])
def test_equals_float64(init, conv_width, steps):
  x, mask = mixer_oracle.ragged(30, 5, 0, width=16)
  mask[0, 7:9] = False  # padding may stand between tokens
  mixer = Mixer(num_heads=2, qkv_width=12, num_landmarks=8, pinv_init=init,
                conv_width=conv_width, pinv_steps=steps)
  mixer_oracle.check(
      mixer, functools.partial(oracle, init=init, steps=steps), x, mask,
      tolerance=3e-5)


def test_as_many_landmarks_as_tokens_give_softmax_attention():
  x, mask = mixer_oracle.ragged(12, 7, width=16)
  mixer = Mixer(num_heads=2, qkv_width=32, num_landmarks=12, pinv_steps=20,
                conv_width=0)
  variables = mixer_oracle.init(mixer, 2 * x, mask)
  exact = jax.tree.map(np.float64, variables['params'])
  q, k, v = (mixer_oracle.heads(np, 2 * x, exact[name])
             for name in ('query', 'key', 'value'))
  want = mixer_oracle.merge(np, mixer_oracle.attention(
      np, q, k, v, mask, 16**-0.5), exact['out'])
  got = mixer_oracle.apply(mixer, variables, 2 * x, mask)
  mixer_oracle.close(got[mask], want[mask], 1e-3, 'outputs')


@pytest.mark.full
def test_examples_change_each_other_with_the_original_start_only():
  x, mask = mixer_oracle.ragged(30, 30, width=16)
  x[1] *= 5  # one key attracts all: a large column sum
  for init in ('original', 'exact'):
    mixer = Mixer(num_heads=2, qkv_width=12, num_landmarks=8, pinv_init=init)
    variables = mixer_oracle.init(mixer, x, mask)
    both = mixer_oracle.apply(mixer, variables, x, mask)
    alone = mixer_oracle.apply(mixer, variables, x[:1], mask[:1])
    assert (np.abs(both[0] - alone[0]).max() > 1e-3) == (init == 'original')
