"""Compares sparse attention with dense softmax under explicit masks.

Each case gives the fields of a mixer, and for each of its groups of heads
whether query i sees key j. The first case of a model is the quick one.
"""

import numpy as np
import pytest

from lra import models
from tests.helpers import mixer_oracle, sparse_oracle


def _window(radius):
  return lambda i, j: abs(i - j) <= radius


def _sinks(radius, sinks):
  return {'radius': radius, 'num_sinks': sinks}, (
      lambda i, j: abs(i - j) <= radius or j < sinks)


def _local(block):
  return {'block_size': block}, lambda i, j: i // block == j // block


def _ngram(order):
  return {'order': order}, lambda i, j: 0 <= i - j < order


def _strided(stride, heads, few):
  s = stride or 8  # the square root of 61, rounded up
  return ({'stride': stride, 'num_heads': heads, 'num_global': few},
          lambda i, j: abs(i - j) < s or min(i, j) < few,
          lambda i, j: (i - j) % s == 0 or min(i, j) < few)


def _fixed(stride, summary, heads, few):
  s = stride or 8
  return ({'stride': stride, 'summary': summary, 'num_heads': heads,
           'num_global': few},
          lambda i, j: i // s == j // s or min(i, j) < few,
          lambda i, j: j % s >= s - summary or min(i, j) < few)


CASES = {
    'attention_sink': [_sinks(5, 4), _sinks(3, 0), _sinks(0, 1),
                       _sinks(20, 30)],
    'local': [_local(8), _local(100)],
    'ngram': [_ngram(6), _ngram(1), _ngram(40), _ngram(2**20)],
    'sliding_window': [({'radius': r}, _window(r))
                       for r in (5, 0, 37, 2**20)],
    'sparse_strided': [_strided(7, 4, 2), _strided(0, 2, 0), _strided(5, 3, 0),
                       _strided(1, 2, 0), _strided(2**20, 2, 0)],
    'sparse_fixed': [_fixed(7, 2, 4, 6), _fixed(0, 2, 2, 0), _fixed(7, 3, 3, 0),
                     _fixed(5, 9, 2, 0), _fixed(100, 60, 2, 0)]}


@pytest.mark.parametrize('name, fields, sees', [
    pytest.param(name, fields, sees, id=f'{name} {fields}',
                 marks=pytest.mark.full if i else ())
    for name, cases in CASES.items()
    for i, (fields, *sees) in enumerate(cases)])
def test_equals_softmax_under_the_mask(name, fields, sees):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer_oracle.check(
      models.mixer(name)(**{'num_heads': 2, 'qkv_width': 12, **fields}),
      sparse_oracle.mixer(*(sparse_oracle.matrix(61, f) for f in sees)), x,
      mask)


@pytest.mark.parametrize('heads, radius', [
    (3, 5), mixer_oracle.full(1, 20), mixer_oracle.full(4, 2**20)])
def test_query_heads_share_one_head_of_keys_and_values(heads, radius):
  seen = sparse_oracle.matrix(61, _window(radius))

  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    k, v = (xp.concatenate([y] * heads, 2) for y in (k, v))
    o = sparse_oracle.attend(xp, q, k, v, seen & mask[:, None, None, :])
    return mixer_oracle.merge(xp, o, params['out'])

  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = models.mixer('sliding_window_mqa')(
      num_heads=heads, qkv_width=12, radius=radius)
  mixer_oracle.check(mixer, oracle, x, mask)


def _longformer(window, dilation, num_global):
  def sees(i, j):
    near = abs(i - j) <= window // 2 * dilation and (i - j) % dilation == 0
    return near or j < num_global

  seen = sparse_oracle.matrix(61, sees)

  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    o = sparse_oracle.attend(xp, q, k, v, seen & mask[:, None, None, :])
    if num_global:
      q = mixer_oracle.heads(xp, x, params['global_query'])
      k = mixer_oracle.heads(xp, x, {'kernel': params['global_key']})
      v = mixer_oracle.heads(xp, x, {'kernel': params['global_value'],
                                     'bias': params['global_value_bias']})
      everything = np.broadcast_to(mask[:, None, None, :], (*mask.shape[:1], 1,
                                                            61, 61))
      rows = sparse_oracle.attend(xp, q, k, v, everything)
      o = xp.concatenate([rows[:, :num_global], o[:, num_global:]], 1)
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


@pytest.mark.parametrize('window, dilation, num_global', [
    (6, 3, 2), mixer_oracle.full(41, 1, 1), mixer_oracle.full(2**20, 1, 0),
    mixer_oracle.full(0, 1, 1)])
def test_longformer_has_projections_for_global_tokens(
    window, dilation, num_global):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = models.mixer('longformer')(
      num_heads=2, qkv_width=8, window=window, dilation=dilation,
      num_global=num_global)
  mixer_oracle.check(
      mixer, _longformer(window, dilation, num_global), x, mask)
  extra = {'global_query', 'global_key', 'global_value', 'global_value_bias'}
  assert set(mixer_oracle.shapes(mixer, x, mask)) & extra == (
      extra if num_global else set())


def _merged(xp, q, k, v, mask, block):
  """Computes phase 2: merges the softmaxes of all blocks by log-sum-exp."""
  outs, sizes = [], []
  for start in range(0, k.shape[1], block):
    part = slice(start, start + block)
    logits = xp.einsum('blhd,bshd->bhls', q, k[:, part]) * q.shape[-1]**-0.5
    keep = mask[:, None, None, part]
    e = xp.where(keep, xp.exp(logits), 0)
    total = e.sum(-1)
    outs.append(mixer_oracle.weigh(
        xp, e / xp.where(total > 0, total, 1)[..., None], v[:, part]))
    sizes.append(xp.moveaxis(total, 1, 2))  # exp of the log-sum-exp
  whole = sum(sizes)
  return sum(out * (size / xp.where(whole > 0, whole, 1))[..., None]
             for out, size in zip(outs, sizes, strict=True))


@pytest.mark.full
@pytest.mark.parametrize('block, queries', [
    (9, 1), (16, 20), (7, 0), (100, 1)])
def test_star_equals_the_two_phases(block, queries):
  seen = sparse_oracle.matrix(61, lambda i, j: j // block in (i // block, 0))

  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    context = sparse_oracle.attend(xp, q, k, v, seen & mask[:, None, None, :])
    query = _merged(xp, q[:, :queries], k, v, mask, block)
    o = xp.concatenate([query, context[:, queries:]], 1)
    return mixer_oracle.merge(xp, o, params['out'])

  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer_oracle.check(models.mixer('star')(
      num_heads=2, qkv_width=8, block_size=block, num_queries=queries), oracle,
                     x, mask)


@pytest.mark.parametrize('length, stride', [
    (1, 1), (2, 2), (64, 8), (65, 9), (4001, 64)])
def test_automatic_stride_is_the_square_root_rounded_up(length, stride):
  near, strided = models.mixer('sparse_strided')().patterns(length)
  assert near.radius == stride - 1 and strided.dilation == stride
  assert np.ceil(np.sqrt(length)) == stride
