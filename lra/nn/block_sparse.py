"""Computes attention under a fixed sparse pattern, without an [L, L] array.

A query sees up to three sets of keys:

  window: the blocks around the query's own, concatenated
  shared: the keys that all queries see
  random: some random blocks, gathered

The sets are disjoint: shared keys are left out of the window and of random
blocks. Dense matmuls compute a partial softmax over each set, and
`lra.nn.partials` merges them. The few queries that see every key get a softmax
over all keys.

Shapes: B batch, L length, H heads, Dh head width, E residues modulo the
dilation, N blocks of I positions, M shared keys, R random blocks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lra.nn import partials
from lra.nn.mixer import HeadMixer
from lra.nn.partials import Partial, forbid, partial_softmax
from lra.nn.patterns import Pattern


class Heads(NamedTuple):
  """Queries [B, L, H, Dh], keys and values [B, L, G, Dh].

  Consecutive groups of H / G query heads share keys and values.
  """
  q: jax.Array
  k: jax.Array
  v: jax.Array


class PatternMixer(HeadMixer):
  """Sparse attention with one pattern per group of heads."""

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """Returns one pattern per equal group of heads, in order, for `length`."""
    raise NotImplementedError

  def state_size(self, width: int, length: int) -> int:
    patterns = self.patterns(length)
    heads = np.array_split(np.arange(self.num_heads), len(patterns))
    return sum(
        self.kv_size(pattern.kept(length)) * len(some)
        // self.num_heads for some, pattern in zip(
            heads, patterns, strict=True))

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    return attend_in_groups(Heads(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh), mask_BxL,
                            self.patterns(q_BxLxHxDh.shape[1]))


def attend(qkv: Heads, mask_BxL, pattern: Pattern) -> jax.Array:
  """Returns softmax attention over the pairs of positions in `pattern`.

  Logits are scaled by Dh**-0.5. No query attends to padding. The result is
  [B, L, H, Dh] in the dtype of `v`, 0 at queries that see no token.
  """
  B, L, H, _ = qkv.q.shape
  num_logits = B * H * L * pattern.num_keys(L)
  qkv = Heads(*(jnp.moveaxis(x, 2, 0) for x in qkv))
  tables = _tables(pattern, H)

  def one_head(qkv, table_NxR):
    rows = jax.vmap(lambda qkv, mask_L: _sequence(
        qkv, mask_L, pattern, table_NxR))(qkv, mask_BxL)
    if not pattern.global_queries:
      return rows
    few = qkv._replace(q=qkv.q[:, :pattern.global_queries])
    return jnp.concatenate(
        [_rows(few, mask_BxL), rows[:, pattern.global_queries:]], 1)

  def one_group(qkv, tables_JxNxR):
    # k and v are closed over: as arguments they would be copied for each head.
    # They are float32, because the gradients of all heads are summed in the
    # dtype of k and v.
    k, v = (x.astype(jnp.float32) for x in (qkv.k, qkv.v))
    return partials.over_heads(
        lambda q, table_NxR: one_head(
            Heads(q, k.astype(qkv.k.dtype), v.astype(qkv.v.dtype)), table_NxR),
        qkv.q, tables_JxNxR, num_logits=num_logits)

  groups = len(qkv.k)
  if groups == H:
    o_HxBxLxDh = partials.over_heads(
        one_head, qkv, tables, num_logits=num_logits)
  else:
    q, tables = jax.tree.map(
        lambda x: x.reshape(groups, H // groups, *x.shape[1:]),
        (qkv.q, tables))
    o_HxBxLxDh = jax.vmap(one_group)(qkv._replace(q=q), tables).reshape(
        qkv.q.shape)
  return jnp.moveaxis(o_HxBxLxDh, 0, 2)


def attend_in_groups(qkv: Heads, mask_BxL,
                     patterns: tuple[Pattern, ...]) -> jax.Array:
  """Splits the heads evenly, in order, over the patterns and calls `attend`.

  Keys may have fewer heads than queries only if there is a single pattern.
  """
  groups = np.array_split(np.arange(qkv.q.shape[2]), len(patterns))
  return jnp.concatenate([
      attend(Heads(*(x[:, :, g[0]:g[-1] + 1] for x in qkv)), mask_BxL, pattern)
      for g, pattern in zip(groups, patterns, strict=True) if len(g)], 2)


def to_blocks(x_L, block: int, dilation: int = 1):
  """Cuts every E-th position into zero-filled blocks, [L] -> [E, N, I, ...]."""
  L, *rest = x_L.shape
  x_L = jnp.pad(x_L, [(0, -L % (block * dilation))] + [(0, 0)] * len(rest))
  return x_L.reshape(-1, block, dilation, *rest).transpose(
      2, 0, 1, *range(3, 3 + len(rest)))


def from_blocks(x_ExNxI, length: int):
  """Inverts `to_blocks`: [E, N, I, ...] -> [L, ...]."""
  rest = x_ExNxI.shape[3:]
  x_NxIxE = x_ExNxI.transpose(1, 2, 0, *range(3, x_ExNxI.ndim))
  return x_NxIxE.reshape(-1, *rest)[:length]


def neighbours(x_ExNxI, offsets: tuple[int, ...]):
  """Joins blocks n + o for all offsets o, [E, N, I, ...] -> [E, N, K, ...].

  Blocks beyond either end are 0. The blocks are slices, because gathers are
  slow on a CPU.
  """
  if offsets == (0,):
    return x_ExNxI
  N = x_ExNxI.shape[1]
  before, after = max(0, -min(offsets)), max(0, max(offsets))
  padding = [(0, 0)] * x_ExNxI.ndim
  padding[1] = (before, after)
  padded = jnp.pad(x_ExNxI, padding)
  return jnp.concatenate(
      [padded[:, before + o:before + o + N] for o in offsets], axis=2)


def _tables(pattern, heads):
  if not pattern.random_blocks:
    return None
  tables = np.array(pattern.random_blocks, np.int32)
  return jnp.asarray(np.broadcast_to(tables, (heads, *tables.shape[1:])))


def _sequence(qkv, mask_L, pattern, table_NxR):
  """Attends in one head of one sequence; qkv: each [L, Dh] -> [L, Dh]."""
  L = mask_L.shape[0]
  own_L = mask_L & ~pattern.shared_keys(L)
  parts = []
  if pattern.fitting_offsets(L):
    parts.append(_window(qkv, own_L, pattern))
  if pattern.global_keys:
    parts.append(_globals(qkv, mask_L, pattern))
  if pattern.summary:
    parts.append(_summary(qkv, mask_L, pattern))
  if table_NxR is not None:
    parts.append(_random(qkv, own_L, pattern.block, table_NxR))
  return partials.normalise(partials.merge(parts)).astype(qkv.v.dtype)


def window(pattern: Pattern, length: int):
  """Returns the offsets that fit, and key minus query in a block, [I, K]."""
  offsets = pattern.fitting_offsets(length)
  i = np.arange(pattern.block)
  return offsets, np.concatenate(
      [i + o * pattern.block for o in offsets]) - i[:, None]


def _window(qkv, mask_L, pattern) -> Partial:
  L = mask_L.shape[0]
  offsets, apart_IxK = window(pattern, L)
  q, k, v, mask = (to_blocks(x, pattern.block, pattern.dilation)
                   for x in (*qkv, mask_L))
  allowed_ExNx1xK = neighbours(mask, offsets)[:, :, None]
  if pattern.radius is not None:
    allowed_ExNx1xK &= (np.abs(apart_IxK) <= pattern.radius)[None, None]
  if pattern.causal:
    allowed_ExNx1xK &= (apart_IxK <= 0)[None, None]
  part = partial_softmax(q, neighbours(k, offsets), neighbours(v, offsets),
                         bias=forbid(allowed_ExNx1xK))
  return jax.tree.map(lambda x: from_blocks(x, L), part)


def _globals(qkv, mask_L, pattern) -> Partial:
  k, v, mask = (x[:pattern.global_keys] for x in (qkv.k, qkv.v, mask_L))
  return partial_softmax(qkv.q, k, v, bias=forbid(mask))


def _summary(qkv, mask_L, pattern) -> Partial:
  period, width = pattern.summary

  def last(x_L):
    x_NxI = to_blocks(x_L, period)[0, :, period - width:]
    return x_NxI.reshape(-1, *x_L.shape[1:])

  mask_L &= np.arange(len(mask_L)) >= pattern.global_keys
  return partial_softmax(
      qkv.q, last(qkv.k), last(qkv.v), bias=forbid(last(mask_L)))


def _random(qkv, mask_L, block, table_NxR) -> Partial:
  q, k, v, mask = (to_blocks(x, block)[0] for x in (*qkv, mask_L))
  N, R = table_NxR.shape
  if N != len(q):
    raise ValueError(
        f'random_blocks has {N} blocks, but the sequence has {len(q)}')

  def gather(x_NxI):
    return x_NxI[jnp.maximum(table_NxR, 0)].reshape(
        N, R * block, *x_NxI.shape[2:])

  allowed_NxK = gather(mask) & jnp.repeat(table_NxR >= 0, block, axis=1)
  part = partial_softmax(
      q, gather(k), gather(v), bias=forbid(allowed_NxK)[:, None])
  return jax.tree.map(lambda x: from_blocks(x[None], mask_L.shape[0]), part)


def _rows(qkv, mask_BxL):
  part = partial_softmax(*qkv, bias=forbid(mask_BxL)[:, None])
  return partials.normalise(part).astype(qkv.v.dtype)
