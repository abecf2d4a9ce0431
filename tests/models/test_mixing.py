"""Compares convolutions and mixers of positions with their equations, float64.
"""

import functools

import jax
import numpy as np
import pytest

from lra import models
from tests.helpers import mixer_oracle
from tests.helpers import recurrent_oracle as parts
from tests.helpers.mixer_oracle import full
from tests.helpers.recurrent_oracle import dense


def _convolution(xp, taps, x):
  """Convolves [B, L, C] with taps [K, C] or [K, C, E] around each token."""
  gap = np.arange(x.shape[1])[None] - np.arange(x.shape[1])[:, None]
  gap = gap + len(taps) // 2
  inside = (gap >= 0) & (gap < len(taps))
  matrix = taps[np.clip(gap, 0, len(taps) - 1)] * inside.reshape(
      *inside.shape, *(1,) * (taps.ndim - 1))
  return xp.einsum('tsd,bsd->btd' if taps.ndim == 2 else 'tsde,bsd->bte',
                   matrix, x)


def _norm(xp, y, params):
  return parts.layer_norm(xp, y, 1e-6) * params['scale'] + params['bias']


def _aa_conv(xp, params, x, mask):
  o = mixer_oracle.transformer(xp, params, x, mask)
  if 'conv' not in params:
    return o
  conv = params['conv']
  taps = conv['kernel'].reshape(-1, x.shape[-1], conv['bias'].size)
  y = _convolution(xp, taps, x * mask[..., None]) + conv['bias']
  return xp.concatenate([y, o], -1)


def _conformer(xp, params, x, mask):
  a = mixer_oracle.transformer(xp, params, x, mask)
  conv = params['conv']
  y = _norm(xp, x + a, conv['norm_in'])
  y = dense(y, conv['value']) * parts.sigmoid(xp, dense(y, conv['gate']))
  y = _convolution(xp, conv['depthwise'], y * mask[..., None])
  y = _norm(xp, y + conv['depthwise_bias'], conv['norm'])
  return a + dense(parts.silu(xp, y), conv['out'])


def _conv_mixer(xp, params, x, mask):
  y = _convolution(xp, params['conv'], x * mask[..., None]) + params['bias']
  return _norm(xp, parts.gelu(xp, y, exact=True), params['norm'])


def _mlp_mixer(xp, params, x, mask):
  x = x * mask[..., None]
  n = x.shape[1]
  y = xp.einsum('ls,bld->bsd', params['up_kernel'][:n], x)
  y = y + params['up_bias'][:, None]
  y = xp.einsum('sl,bsd->bld', params['down_kernel'][:, :n], parts.gelu(xp, y))
  return y + params['down_bias'][:n, None]


def _angles(n):
  return 2 * np.pi * np.outer(np.arange(n), np.arange(n)) / n


def _fnet(xp, params, x, mask, full, orthonormal=True):
  _, n, width = x.shape
  rows, columns = _angles(full)[:n, :n], _angles(width)
  x = x * mask[..., None]
  y = (xp.einsum('kl,bld,de->bke', np.cos(rows), x, np.cos(columns))
       - xp.einsum('kl,bld,de->bke', np.sin(rows), x, np.sin(columns)))
  return y / (full * width)**0.5 if orthonormal else y


@pytest.mark.parametrize('name, options, oracle, shapes', [
    ('aa_conv', {'num_heads': 2, 'value_share': 0.25}, _aa_conv,
     {'query/kernel': (16, 2, 4), 'out/kernel': (2, 2, 4),
      'conv/kernel': (48, 12)}),
    full('aa_conv', {'num_heads': 2, 'value_share': 0.7, 'conv_width': 4},
         _aa_conv, {'out/kernel': (2, 6, 12)}),
    full('aa_conv', {'num_heads': 2, 'value_share': 1.0}, _aa_conv,
         {'out/kernel': (2, 8, 16), 'conv/kernel': None}),
    ('conformer', {'num_heads': 2, 'qkv_width': 12, 'conv_width': 7,
                   'conv_expansion': 2}, _conformer,
     {'conv/depthwise': (7, 32)}),
    ('conv_mixer', {'conv_width': 9}, _conv_mixer, {'conv': (9, 16)}),
    full('conv_mixer', {'conv_width': 40}, _conv_mixer, {}),
    ('mlp_mixer', {'hidden': 5, 'full_length': 30}, _mlp_mixer,
     {'up_kernel': (30, 5)})])
def test_equals_float64(name, options, oracle, shapes):
  x, mask = mixer_oracle.ragged(21, 12, 0, width=16)
  mixer = models.mixer(name)(**options)
  mixer_oracle.check(mixer, oracle, x, mask, tolerance=3e-5)
  found = {jax.tree_util.keystr(path, simple=True, separator='/'): p.shape
           for path, p in jax.tree_util.tree_leaves_with_path(
               mixer_oracle.shapes(mixer, x, mask))}
  assert {path: found.get(path) for path in shapes} == shapes


@pytest.mark.parametrize('length, width, whole, orthonormal', [
    (17, 8, None, True), (12, 7, 30, True), (12, 1, None, False)])
def test_fnet_equals_float64(length, width, whole, orthonormal):
  """Tests odd and even widths, and a length cut from 30."""
  x, mask = mixer_oracle.ragged(length, 5, 0, width=width)
  mixer = models.mixer('fnet')(full_length=whole, orthonormal=orthonormal)
  mixer_oracle.check(mixer, functools.partial(
      _fnet, full=whole or length, orthonormal=orthonormal), x, mask)
  assert not mixer.init({}, x, mask, train=False)
