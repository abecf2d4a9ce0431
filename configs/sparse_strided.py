"""Sparse Transformer, strided (arXiv 1904.10509): near, and in strides.

The paper takes "a stride close to sqrt(n)" (section 4.3).
"""

from lra.configs import base

get_config = base.of(
    'sparse_strided', num_heads=lambda c: max(c.model.num_heads, 2))
