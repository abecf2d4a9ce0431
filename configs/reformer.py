"""Reformer (arXiv 2001.04451): attention within buckets of a hash.

The paper (section 5) trains with up to 8 rounds, in 2 L / 64 buckets. The Long
Range Arena release has one round, ten buckets and chunks of L / 10.
"""

from lra.configs import base

get_config = base.of(
    'reformer',
    rounds=lambda c: base.argument(c, 'hash_rounds'),
    chunk_size=lambda c: base.by_size(c, 64, mini=16),
    num_buckets=lambda c: base.derived(
        lambda L, chunk: 2 * -(-L // chunk), base.length(c),
        c.model.get_ref('chunk_size')))
