"""BigBird: neighbouring, global and random blocks of keys.

This is the internal construction (no added tokens). The authors' code and the
LRA release make the first and the last block global; in LRA the last block is
nearly always padding.

Random blocks differ between heads and layers. They are drawn once, among all
blocks of the padded sequence: another padded length gives other blocks.
Sequences with padding cut off keep those of the uncut ones.

Equation: softmax over { j : block(j) in window, global or random blocks of
  block(i) } of q_i k_j / sqrt(Dh); all j if block(i) is global
Source: Zaheer et al. 2020, arXiv 2007.14062, section 2 and appendix D
"""

import zlib

from lra.core.errors import UserError
from lra.models import About
from lra.nn import patterns
from lra.nn.block_sparse import PatternMixer
from lra.schema import fields

# The random graph depends on the padded length.
ABOUT = About('sparse', 'O(L b (w + g + r) D) for blocks of b',
              mixes_padding=True)


class Mixer(PatternMixer):
  block_size: int = fields.count(64, 'Number of positions in a block.')
  window_blocks: int = fields.count(
      3, "Number of blocks in the window; must be odd, since the query's own "
      'block is in the middle.')
  global_blocks: int = fields.count(
      2, 'Number of first blocks that see all blocks and that all blocks see.',
      low=0)
  random_blocks: int = fields.count(
      3, 'Number of random blocks that each query block sees, in each head.',
      low=0)
  pattern_seed: int = fields.argument(
      0, 'Seed of the random graph.', low=0, high=fields.COUNT)
  layer: int = 0

  def state_size(self, width: int, length: int) -> int:
    if self.random_blocks:
      return self.kv_size(length)
    return super().state_size(width, length)

  def patterns(self, length):
    if self.window_blocks % 2 == 0:
      raise UserError('config.model.window_blocks must be odd: the block of '
                      'the query is in the middle.')
    # The random blocks of old records depend on this name: never change it.
    name = f'encoder/block_{self.layer}/mixer'
    reach = self.window_blocks // 2
    positions = self.global_blocks * self.block_size
    drawn = patterns.random_blocks(
        -(-(self.full_length or length) // self.block_size),
        self.random_blocks, reach=reach, num_global=self.global_blocks,
        heads=self.num_heads,
        seed=(self.pattern_seed, zlib.crc32(name.encode())))
    return (patterns.Pattern(
        block=self.block_size, offsets=tuple(range(-reach, reach + 1)),
        global_keys=positions, global_queries=positions,
        random_blocks=patterns.first_blocks(
            drawn, -(-length // self.block_size))),)
