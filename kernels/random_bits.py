"""Fast random words for each row of a batch, equal to those of `jax.random`.

Threefry-2x32 takes 20 rounds for a word. On a CPU, JAX rolls them into a loop
that reads and writes all words many times. Unrolled, they stay in registers,
which is five times faster here. A loop over the rows keeps XLA, which takes the
words for cheap, from recomputing them at every use.

Source: Salmon et al. 2011, 'Parallel random numbers: as easy as 1, 2, 3',
  section 3.2 and table 2 of rotations
"""

import math

import jax
import jax.numpy as jnp

from lra.kernels import axes, dispatch, meshes

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # constant of the key schedule


def draw(key: jax.Array, count: int, shape: tuple[int, ...],
         function=None) -> jax.Array:
  """Returns uniform uint32 words of each row: [count, *shape].

  Row i has the words of `jax.random.bits` for `axes.keys(key, count)[i]`;
  `key` may be keys [count]. `function` is applied to each word, for example a
  comparison; its result is returned and the words need no memory. There is no
  gradient.
  """
  loop = _by_position(key) and math.prod(shape) < 2**32 and _one_processor()

  def row(key):
    if loop:
      place = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
      words = _words(key, jnp.uint32(0), place)
    else:
      words = jax.random.bits(key, shape, jnp.uint32)
    return function(words) if function else words

  return _each(row, axes.keys(key, count), loop)


def uniform(words: jax.Array) -> jax.Array:
  """Maps words to float32 in [0, 1) by 23 bits, like `jax.random.uniform`."""
  # The bits become the mantissa of a number in [1, 2).
  one_to_two = words >> 9 | jnp.uint32(0x3F800000)
  return jax.lax.bitcast_convert_type(one_to_two, jnp.float32) - 1


def kept(key: jax.Array, count: int, shape: tuple[int, int, int], rate: float,
         starts: tuple = (0, 0)) -> jax.Array:
  """Returns which attention weights dropout keeps: bool [count, H, I, J].

  Each weight has its own word, the output of threefry for the counter
  (h * 2^20 + i, j) of its head, query and key. So the words of a weight do not
  depend on the tile or on the sequence's length. Keys of other generators give
  each tile words of its own.

  Args:
    key, count: key of jax.random, or keys [count]; number of rows.
    rate: share of weights that are dropped.
    shape: (H, I, J): heads, queries and keys of a tile. Words are distinct for
      fewer than 4,096 heads and at most 2^20 queries.
    starts: first query and first key of the tile; may be traced.
  """
  by_position = _by_position(key)

  def row(key):
    if by_position:
      return _is_kept(_words(key, *_counters(shape, starts)), rate)
    for start in starts:
      key = jax.random.fold_in(key, start)
    return _is_kept(jax.random.bits(key, shape, jnp.uint32), rate)

  loop = by_position and _one_processor()
  return _each(row, axes.keys(key, count), loop)


def _is_kept(words, rate):
  return uniform(words) < 1.0 - rate


def _each(row, keys_B, loop):
  return jax.lax.map(row, keys_B) if loop else jax.vmap(row)(keys_B)


def _counters(shape, starts):
  heads, *sizes = (jnp.arange(n, dtype=jnp.uint32) for n in shape)
  queries, keys = (jnp.asarray(start, jnp.uint32) + size
                   for start, size in zip(starts, sizes, strict=True))
  return (heads[:, None, None] << 20) + queries[:, None], keys


def _by_position(key):
  """Returns whether a word depends only on the key and its position."""
  return (jax.config.jax_threefry_partitionable
          and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
          and str(jax.random.key_impl(key)) == 'threefry2x32')


def _one_processor():
  return dispatch.platform() == 'cpu' and not meshes.free(
      jax.sharding.get_abstract_mesh())


def _words(key, high, low):
  """Returns words of a key for 64-bit counters in two uint32 halves."""
  one, two = jax.random.key_data(key)
  keys = (one, two, one ^ two ^ jnp.uint32(PARITY))
  x, y = jnp.broadcast_arrays(high + keys[0], low + keys[1])
  for i in range(5):
    for rotation in ROTATIONS[i % 2]:
      x = x + y
      y = x ^ ((y << rotation) | (y >> (32 - rotation)))
    x = x + keys[(i + 1) % 3]
    y = y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
  return x ^ y
