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
  key: jax.Array,
  count: int,
  shape: tuple[int, ...],
  function=None,
  part: tuple[tuple, tuple] | None = None,
) -> jax.Array:
  """Uniform uint32 words of each row: [count, *shape].

  Args:
    key: key of jax.random. Row i has the words of `jax.random.bits` of
      `rows.keys(key, count)[i]`.
    count: rows of the batch.
    shape: of the words of one row.
    function: word by word, what is returned instead, such as a comparison; it
      saves the memory of the words. Without gradient.
    part: (start, size) of the last two axes, only which are drawn; starts may
      be traced. What is beyond the shape is of no meaning. Parts have the
      words of the whole where JAX draws each by its position: with keys of
      'threefry2x32', which are partitionable, and fewer than 2**32 words.
  """
  by_position = _by_position(key) and math.prod(shape) < 2**32
  loop = by_position and _one_processor()

  def row(key):
    if loop or by_position and part:
      words = _words(key, _positions(shape, part))
    else:
      words = _jax_words(key, shape, part)
    return function(words) if function else words

  keys_B = rows.keys(key, count)
  return jax.lax.map(row, keys_B) if loop else jax.vmap(row)(keys_B)


def uniform(words: jax.Array) -> jax.Array:
  """float32 in [0, 1) of 23 bits of each word, as `jax.random.uniform`."""
  # The bits are the fraction of a number in [1, 2).
  one_to_two = words >> 9 | jnp.uint32(0x3F800000)
  return jax.lax.bitcast_convert_type(one_to_two, jnp.float32) - 1


def kept(
  key: jax.Array,
  count: int,
  shape: tuple[int, ...],
  rate: float,
  part: tuple[tuple, tuple] | None = None,
) -> jax.Array:
  """What dropout keeps of each row: bool, False at `rate`; see `draw`."""
  return draw(
    key, count, shape, lambda words: uniform(words) < 1.0 - rate, part
  )


def _by_position(key):
  """Whether a word depends on the key and on its position only."""
  return (
    jax.config.jax_threefry_partitionable
    and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    and str(jax.random.key_impl(key)) == 'threefry2x32'
  )


def _one_processor():
  """Whether one processor draws."""
  return dispatch.platform() == 'cpu' and not meshes.free(
    jax.sharding.get_abstract_mesh()
  )


def _jax_words(key, shape, part):
  """Words by JAX, each part's its own."""
  if part:
    for start, _ in part:
      key = jax.random.fold_in(key, start)
    shape = (*shape[:-2], *(size for _, size in part))
  return jax.random.bits(key, shape, jnp.uint32)


def _positions(shape, part):
  """uint32: where words are in an array of this shape, or in a part of it."""
  if part is None:
    return jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
  axes = [(0, size) for size in shape[:-2]] + list(part)
  position = jnp.uint32(0)
  for size, (start, count) in zip(shape, axes, strict=True):
    own = jnp.asarray(start, jnp.uint32) + jnp.arange(count, dtype=jnp.uint32)
    position = position[..., None] * jnp.uint32(size) + own
  return position


def _words(key, position):
  one, two = jax.random.key_data(key)
  keys = (one, two, one ^ two ^ jnp.uint32(PARITY))
  x, y = jnp.broadcast_to(keys[0], position.shape), position + keys[1]
  for i in range(5):
    for rotation in ROTATIONS[i % 2]:
      x = x + y
      y = x ^ ((y << rotation) | (y >> (32 - rotation)))
    x = x + keys[(i + 1) % 3]
    y = y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
  return x ^ y
