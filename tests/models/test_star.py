"""Compares Star Attention with its two phases, block by block."""

import pytest

from lra.models.star import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


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


def _oracle(block, queries):
  seen = sparse_oracle.matrix(
      61, lambda i, j: j // block in (i // block, 0))

  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    context = sparse_oracle.attend(xp, q, k, v, seen & mask[:, None, None, :])
    query = _merged(xp, q[:, :queries], k, v, mask, block)
    o = xp.concatenate([query, context[:, queries:]], 1)
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


@pytest.mark.full
@pytest.mark.parametrize('block,queries', [
    (9, 1), mixer_oracle.full(16, 20), mixer_oracle.full(7, 0),
    mixer_oracle.full(100, 1)])
def test_equals_the_two_phases(block, queries):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer_oracle.check(
      Mixer(num_heads=2, qkv_width=8, block_size=block, num_queries=queries),
      _oracle(block, queries), x, mask)
