"""Sinkhorn (arXiv 2002.11296): own block and one sorted block.

Blocks as in the LRA release. The sorting network is as wide as a head.
"""

from lra.configs import base

get_config = base.of(
    'sinkhorn', block_size=lambda c: base.by_size(c, 50, mini=16),
    sort_width=base.head_width)
