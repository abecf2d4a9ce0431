"""Sparse Transformer, fixed (arXiv 1904.10509): blocks and their summaries.

The paper takes summaries of 8 to 32 positions in blocks of 128 and 256 (section
4.3). The Long Range Arena release has 32 in blocks of 128, causal.
"""

from lra.configs import base

get_config = base.of(
    'sparse_fixed', num_heads=lambda c: max(c.model.num_heads, 2),
    summary=lambda c: base.by_size(c, 8, mini=2))
