"""Random words of each row of a batch, those of `jax.random`, drawn fast.

Threefry-2x32 takes 20 rounds for a word. For a processor JAX rolls them into a
loop that reads and writes all words many times over. Unrolled, they stay in
registers: five times faster here. But then XLA counts them as cheap, and draws
them again wherever they are used; so rows are drawn by a loop, whose results
it keeps. The words are JAX's own.

Source: Salmon et al. 2011, 'Parallel random numbers: as easy as 1, 2, 3',
  section 3.2 and table 2 of rotations
"""

import math

import jax
import jax.numpy as jnp

from kernels import dispatch, meshes, rows

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # of the key schedule


def draw(
  key: jax.Array, count: int, shape: tuple[int, ...], function=None
) -> jax.Array:
  """Uniform uint32 words of each row: [count, *shape].

  Args:
    key: key of jax.random. Row i has the words of `jax.random.bits` of
      `rows.keys(key, count)[i]`.
    count: rows of the batch.
    shape: of the words of one row.
    function: word by word, what is returned instead, such as a comparison; it
      saves the memory of the words. Without gradient.
  """
  function = function or (lambda words: words)
  keys_B = rows.keys(key, count)
  if _by_hand(key) and math.prod(shape) < 2**32:
    return jax.lax.map(lambda key: function(_words(key, shape)), keys_B)
  return jax.vmap(
    lambda key: function(jax.random.bits(key, shape, jnp.uint32))
  )(keys_B)


def uniform(words: jax.Array) -> jax.Array:
  """float32 in [0, 1) of 23 bits of each word, as `jax.random.uniform`."""
  # The bits are the fraction of a number in [1, 2).
  one_to_two = words >> 9 | jnp.uint32(0x3F800000)
  return jax.lax.bitcast_convert_type(one_to_two, jnp.float32) - 1


def _by_hand(key):
  """Whether one processor draws, with a counter that is a word's position."""
  return (
    dispatch.platform() == 'cpu'
    and not meshes.free(jax.sharding.get_abstract_mesh())
    and jax.config.jax_threefry_partitionable
    and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    and str(jax.random.key_impl(key)) == 'threefry2x32'
  )


def _words(key, shape):
  one, two = jax.random.key_data(key)
  keys = (one, two, one ^ two ^ jnp.uint32(PARITY))
  position = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
  x, y = jnp.broadcast_to(keys[0], shape), position + keys[1]
  for i in range(5):
    for rotation in ROTATIONS[i % 2]:
      x = x + y
      y = x ^ ((y << rotation) | (y >> (32 - rotation)))
    x = x + keys[(i + 1) % 3]
    y = y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
  return x ^ y
