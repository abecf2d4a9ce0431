"""Dense softmax attention under an explicit [L, L] mask, for sparse mixers."""

import numpy as np

from tests.helpers import mixer_oracle

# Two lengths that are no multiple of a block, no token, and one token.
LENGTHS = (61, 34, 0, 1)


def matrix(length, sees):
  """Returns bool [L, L], whose entry (i, j) is sees(query i, key j)."""
  return np.array([[bool(sees(i, j)) for j in range(length)]
                   for i in range(length)])


def seen_by(pattern, length, head=0):
  """Returns bool [L, L], written from the definition of `Pattern`."""
  p, tables = pattern, pattern.random_blocks

  def sees(i, j):
    if i < p.global_queries or j < p.global_keys:
      return True
    if p.summary and j % p.summary[0] >= p.summary[0] - p.summary[1]:
      return True
    if tables and j // p.block in tables[head % len(tables)][i // p.block]:
      return True
    place_i, place_j = i // p.dilation, j // p.dilation
    return (i % p.dilation == j % p.dilation and
            place_j // p.block - place_i // p.block in p.offsets and
            (p.radius is None or abs(place_i - place_j) <= p.radius) and
            (not p.causal or j <= i))

  return matrix(length, sees)


def attend(xp, q, k, v, seen):
  """Computes attention of q, k, v [B, L, H, Dh] over the keys that are `seen`.

  `seen` is bool and is broadcast to [B, H, L, L].
  """
  logits = xp.einsum('blhd,bshd->bhls', q, k) * q.shape[-1]**-0.5
  return mixer_oracle.weigh(
      xp, mixer_oracle.softmax_under(
          xp, logits, np.broadcast_to(seen, logits.shape)), v)


def mixer(*matrices):
  """Returns the oracle of a mixer that attends under bool matrices [L, L].

  Its heads form equal groups; each group uses one of `matrices`.
  """

  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    groups = np.array_split(np.arange(q.shape[2]), len(matrices))
    seen = np.stack([seen for seen, group in zip(matrices, groups, strict=True)
                     for _ in group])
    o = attend(xp, q, k, v, seen & mask[:, None, None, :])
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle
