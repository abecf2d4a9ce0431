"""Infini-attention (arXiv 2404.07143): segments and a memory of earlier ones.

Sequences are pooled over their tokens, because the first position of a causal
model sees only itself. A protocol that reads CLS gives it a separate row.
"""

from lra.configs import base

get_config = base.of(
    'infini', pooling='mean',
    segment_size=lambda c: base.by_size(c, 256, mini=8))
