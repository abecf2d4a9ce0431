"""Differential attention (arXiv 2410.05258): one softmax minus another.

A protocol's single head becomes two here, and the second is subtracted.
"""

from lra.configs import base

get_config = base.of(
    'differential', num_heads=lambda c: max(c.model.num_heads, 2))
