"""Compares block-sparse attention with dense softmax; tests its patterns."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.core.errors import UserError
from lra.nn import block_sparse, partials
from lra.nn.patterns import Pattern, sliding_window
from tests.helpers import mixer_oracle, small, sparse_oracle

# Every mechanism at once; random blocks are outside window and globals.
EVERYTHING = Pattern(
    block=8, offsets=(-1, 0, 1), radius=9, global_keys=3, global_queries=2,
    summary=(11, 2),
    random_blocks=(((3, 5), (4, -1), (0, 7), (1, 6), (2, 0), (1, 3), (2, 1),
                    (4, 0)),
                   ((-1, -1), (5, 6), (5, 7), (0, 6), (1, 7), (0, 2), (3, 0),
                    (0, 1))))


def draw(*lengths, length, dtype=np.float64):
  rng = np.random.default_rng(0)
  qkv = [rng.normal(size=(len(lengths), length, 2, 4)).astype(dtype)
         for _ in range(3)]
  return qkv, np.arange(length) < np.array(lengths)[:, None]


@functools.partial(jax.jit, static_argnums=4)
def attend(q, k, v, mask, pattern):
  return block_sparse.attend(block_sparse.Heads(q, k, v), mask, pattern)


@pytest.mark.parametrize('one_by_one', [
    False, mixer_oracle.full(True)])
def test_all_mechanisms_together_and_their_gradients(monkeypatch, one_by_one):
  """Heads computed one by one or all at once equal dense attention."""
  if one_by_one:
    monkeypatch.setattr(partials, 'MANY_LOGITS', 0)
  qkv, mask = draw(61, 30, 0, length=61)
  seen = np.stack([sparse_oracle.seen_by(EVERYTHING, 61, h) for h in range(2)])
  seen = seen & mask[:, None, None]
  weights = np.random.default_rng(1).normal(size=qkv[0].shape)

  def loss(q, k, v):
    # Not the jitted `attend`, which would remember the other MANY_LOGITS.
    o = block_sparse.attend(block_sparse.Heads(q, k, v), mask, EVERYTHING)
    return (o * weights.astype(np.float32)).sum(), o

  (_, got), grads = jax.jit(jax.value_and_grad(
      loss, (0, 1, 2), has_aux=True))(*(np.float32(x) for x in qkv))
  want = sparse_oracle.attend(np, *qkv, seen)
  mixer_oracle.close(got, want, 1e-5, 'outputs')
  assert not np.asarray(got)[2].any()
  with jax.enable_x64(True):
    want = jax.jit(jax.grad(lambda *qkv: (sparse_oracle.attend(
        jnp, *qkv, seen) * weights).sum(), (0, 1, 2)))(*qkv)
  for name, got, exact in zip('qkv', grads, want, strict=True):
    mixer_oracle.close(got, exact, 1e-5, f'gradient of {name}')


def test_bfloat16_sums_in_float32():
  """bfloat16 operands are rounded, but sums over keys are float32."""
  qkv, mask = draw(61, 30, 0, length=61)
  seen = np.stack([sparse_oracle.seen_by(EVERYTHING, 61, h) for h in range(2)])
  got = attend(*(jnp.bfloat16(x) for x in qkv), mask, EVERYTHING)
  assert got.dtype == jnp.bfloat16
  want = sparse_oracle.attend(
      np, *(np.float64(jnp.bfloat16(x)) for x in qkv),
      seen & mask[:, None, None])
  error = np.float64(got) - want
  assert np.sqrt((error**2).mean() / (want**2).mean()) < 4e-3


@pytest.mark.parametrize('length', [1, 33])
@pytest.mark.parametrize('pattern', [
    sliding_window(20, global_keys=4, global_queries=4),
    Pattern(block=4, offsets=(-3, 0, 2), dilation=5),
    Pattern(block=4, offsets=(-2, 0, 1), causal=True, dilation=3),
    Pattern(block=8, offsets=(), summary=(6, 6), global_keys=1)])
def test_any_length(pattern, length):
  qkv, mask = draw(length, max(length - 5, 0), length=length)
  got = attend(*map(np.float32, qkv), mask, pattern)
  want = sparse_oracle.attend(
      np, *qkv, sparse_oracle.seen_by(pattern, length) & mask[:, None, None])
  mixer_oracle.close(got, want, 1e-5, 'outputs')


def test_random_blocks_of_another_length_are_refused():
  qkv, mask = draw(20, length=20, dtype=np.float32)
  with pytest.raises(ValueError, match='8 blocks'):
    attend(*qkv, mask, EVERYTHING)


@pytest.mark.full
@pytest.mark.parametrize('one_by_one', [
    False, mixer_oracle.full(True)])
@pytest.mark.parametrize('groups', [1, 2])
def test_queries_that_share_keys(monkeypatch, groups, one_by_one):
  """Shared keys equal keys and values copied for each query head."""
  if one_by_one:
    monkeypatch.setattr(partials, 'MANY_LOGITS', 0)
  rng = np.random.default_rng(0)
  q = rng.normal(size=(2, 61, 4, 4)).astype(np.float32)
  k, v = rng.normal(size=(2, 2, 61, groups, 4)).astype(np.float32)
  mask = np.arange(61) < np.array([61, 30])[:, None]
  pattern = dataclasses.replace(
      EVERYTHING, random_blocks=2 * EVERYTHING.random_blocks)

  def loss(q, k, v):
    o = block_sparse.attend(block_sparse.Heads(q, k, v), mask, pattern)
    return jnp.sin(o).sum(), o

  def copied(q, k, v):
    return loss(q, *(jnp.repeat(x, 4 // groups, axis=2) for x in (k, v)))

  got, want = (jax.jit(jax.grad(f, (0, 1, 2), has_aux=True))(q, k, v)
               for f in (loss, copied))
  small.assert_close(got, want)


def test_shared_keys_are_not_copied():
  """Temporary memory grows with the heads of keys, not of queries."""
  def temporaries(heads):
    q, k = (jax.ShapeDtypeStruct((1, 512, h, 64), jnp.float32)
            for h in (8, heads))
    mask = jax.ShapeDtypeStruct((1, 512), bool)
    return jax.jit(lambda q, k, v, mask: block_sparse.attend(
        block_sparse.Heads(q, k, v), mask, sliding_window(16))).lower(
            q, k, k, mask).compile().memory_analysis().temp_size_in_bytes

  assert temporaries(1) < 0.6 * temporaries(8)


@pytest.mark.parametrize('one_by_one', [False, True])
def test_gradients_of_shared_keys_are_added_up_in_float32(
    monkeypatch, one_by_one):
  """Sums gradients of 64 heads that share bfloat16 keys in float32.

  A sum in bfloat16 would have an error several times as large.
  """
  if one_by_one:
    monkeypatch.setattr(partials, 'MANY_LOGITS', 0)
  rng = np.random.default_rng(0)
  q, k, v = (jnp.bfloat16(rng.normal(size=(1, 24, heads, 4)))
             for heads in (64, 1, 1))
  weights = jnp.float32(rng.uniform(0.5, 1.5, q.shape))

  def loss(k, v):
    o = block_sparse.attend(
        block_sparse.Heads(q, k, v), jnp.ones((1, 24), bool), sliding_window(5))
    return (o * weights).sum()

  got = jax.jit(jax.grad(loss, (0, 1)))(k, v)
  q = q.astype(jnp.float32)
  want = jax.jit(jax.grad(loss, (0, 1)))(
      k.astype(jnp.float32), v.astype(jnp.float32))
  for a, b in zip(got, want, strict=True):
    error = np.abs(np.float32(a) - b).max() / np.abs(b).max()
    assert error < 2**-7


def test_sliding_window_is_exactly_the_radius():
  for radius in (0, 1, 15, 16, 17, 40):
    want = sparse_oracle.matrix(60, lambda i, j, r=radius: abs(i - j) <= r)
    np.testing.assert_array_equal(
        sparse_oracle.seen_by(sliding_window(radius), 60), want)


@pytest.mark.parametrize('fields', [
    {'block': 0}, {'dilation': 0}, {'summary': (5, 0)}, {'offsets': ()}])
def test_impossible_patterns_are_refused(fields):
  with pytest.raises(UserError, match='pattern'):
    Pattern(**fields)
