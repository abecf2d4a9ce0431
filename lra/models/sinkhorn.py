"""Sinkhorn: attention to a token's own block and to one sorted block.

A sorting network reads the sum of each block of the mixer's input and scores
all blocks. Sinkhorn normalisation turns the scores, with Gumbel noise in
training, into a nearly doubly stochastic matrix S. In one softmax each query
attends to its own block and to the block that S puts in its place. The LRA
release adds the outputs of two softmaxes and replaces Sinkhorn by a softmax.
Its "blocks" are sets of positions L / block apart.

Padded blocks are not sorted, and padded keys enter sorted blocks as 0. The
sorting network has one output for each block of the padded sequence. Its hidden
layer has width D in the paper, which alone would add more than the 10% of
parameters that LRA allows.

Equation: softmax over [K_n; (S K)_n] of q_i k / sqrt(Dh), for i in block n;
  S = Sinkhorn((R + Gumbel) / temperature), R = W2 relu(W1 sum_block x)
Source: Tay et al. 2020, arXiv 2002.11296, section 3
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, draws, partials
from lra.nn.block_sparse import from_blocks, to_blocks
from lra.nn.mixer import AttentionMixer
from lra.schema import fields

# The sorting network fits one padded length.
ABOUT = About('sparse', 'O(L b D + (L / b)^2 b D) for blocks of b', time=2,
              mixes_padding=True)
# The [N, N] permutations of N = L / b blocks are small compared to the tokens.


class Mixer(AttentionMixer):
  block_size: int = fields.count(50, 'Number of positions in a block, b.')
  iterations: int = fields.count(
      7, 'How often the sorting matrix is normalised by rows and columns.')
  temperature: float = fields.argument(
      0.75, 'Divisor of the sorting scores; near 0, the sorting matrix is a '
      'permutation.', above=0, high=fields.LARGEST)
  sort_width: int = fields.count(
      64, 'Width of the hidden layer of the sorting network.')

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh = self.project(x_BxLxD)
    scores_BxHxNxN = self._scores(x_BxLxD, mask_BxL) / self.temperature
    if train:
      keys_B = draws.row_keys(self, len(x_BxLxD))
      scores_BxHxNxN += _gumbel(
          keys_B, scores_BxHxNxN.shape[1:]) / self.temperature
    block_mask_BxN = arrays.cut(mask_BxL, self.block_size).any(-1)
    sort_BxHxNxN = sinkhorn(scores_BxHxNxN, block_mask_BxN, self.iterations)
    o_BxLxHxDh = sorted_attention(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh,
                                  mask_BxL, sort_BxHxNxN, self.block_size)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def _scores(self, x_BxLxD, mask_BxL):
    tokens_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(
        jnp.float32)
    sums_BxNxD = arrays.cut(tokens_BxLxD, self.block_size).sum(2)
    hidden = nn.relu(nn.Dense(self.sort_width, name='sort_hidden')(sums_BxNxD))
    full = -(-(self.full_length or x_BxLxD.shape[1]) // self.block_size)
    scores_BxNxHxF = nn.DenseGeneral(
        (self.num_heads, full), name='sort_out')(hidden)
    return scores_BxNxHxF[..., :sums_BxNxD.shape[1]].swapaxes(1, 2)


def _gumbel(keys_B, shape):
  """Returns Gumbel noise [B, H, N, N].

  Entries do not depend on N: a larger N only adds further ones.
  """
  heads, blocks, _ = shape
  one = lambda key: jax.random.gumbel(key, (blocks,))
  for count in (blocks, heads):
    one = functools.partial(_with_each, one, count)
  return jax.vmap(one)(keys_B)


def _with_each(function, count, key):
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))
  return jax.vmap(function)(keys)


def sinkhorn(scores_BxHxNxN, block_mask_BxN, iterations: int) -> jax.Array:
  """Divides exp(scores) by sums of rows, then of columns, in log space.

  The result is non-negative. Its columns sum to 1; its rows do so in the limit
  of many iterations. Rows and columns of blocks outside the mask are 0.
  """
  both = block_mask_BxN[:, None, :, None] & block_mask_BxN[:, None, None, :]

  @jax.checkpoint
  def normalise(log_BxHxNxN, _):
    for axis in (-1, -2):
      log_BxHxNxN = jnp.where(both, log_BxHxNxN, partials.FORBIDDEN)
      log_BxHxNxN -= jax.nn.logsumexp(log_BxHxNxN, axis=axis, keepdims=True)
    return log_BxHxNxN, None

  log_BxHxNxN, _ = jax.lax.scan(
      normalise, scores_BxHxNxN, length=iterations)
  return jnp.where(both, jnp.exp(jnp.where(both, log_BxHxNxN, 0)), 0)


def sorted_attention(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, sort_BxHxNxN,
                     block: int) -> jax.Array:
  """Attends to a query's own block and to the sorted block in its place.

  Sorted block n is the sum over m of sort[n, m] * block m. Its positions
  without a contribution from a token are not attended to. The result is like
  `v`, [B, L, H, Dh].
  """
  B, L, H, _ = q_BxLxHxDh.shape

  def one_head(q_BxLxDh, k_BxLxDh, v_BxLxDh, sort_BxNxN):
    return jax.vmap(lambda *x: _sequence(*x, block))(
        q_BxLxDh, k_BxLxDh, v_BxLxDh, mask_BxL, sort_BxNxN)

  o_HxBxLxDh = partials.over_heads(
      one_head, *(jnp.moveaxis(x, 2, 0) for x in (
          q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh)),
      jnp.moveaxis(sort_BxHxNxN, 1, 0), num_logits=B * H * L * 2 * block)
  return jnp.moveaxis(o_HxBxLxDh, 0, 2)


def _sequence(q_LxDh, k_LxDh, v_LxDh, mask_L, sort_NxN, block):
  """Attends in one head of one sequence: [L, Dh]."""
  q_NxIxDh, k_NxIxDh, v_NxIxDh, mask_NxI = (
      to_blocks(x, block)[0] for x in (q_LxDh, k_LxDh, v_LxDh, mask_L))

  def sort(x_NxIxDh):
    x_NxIxDh = jnp.where(mask_NxI[..., None], x_NxIxDh, 0)
    return jnp.einsum('nm,mid->nid', sort_NxN.astype(x_NxIxDh.dtype), x_NxIxDh)

  reached_NxI = jax.lax.stop_gradient(sort_NxN) @ mask_NxI.astype(
      jnp.float32) > 0

  def attend(k_NxIxDh, v_NxIxDh, allowed_NxI):
    return partials.partial_softmax(
        q_NxIxDh, k_NxIxDh, v_NxIxDh,
        bias=partials.forbid(allowed_NxI)[:, None])

  part = partials.merge([
      attend(k_NxIxDh, v_NxIxDh, mask_NxI),
      attend(sort(k_NxIxDh), sort(v_NxIxDh), reached_NxI)])
  return from_blocks(partials.normalise(part)[None],
                     mask_L.shape[0]).astype(v_LxDh.dtype)
