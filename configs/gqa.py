"""Grouped-query attention (arXiv 2305.13245): heads share keys and values.

The paper has 64 heads in groups of eight.
"""

from lra.configs import base

get_config = base.of(
    'gqa', num_kv_heads=lambda c: base.derived(
        lambda heads: max(heads // 2, 1), c.model.get_ref('num_heads')))
