"""Infini-attention (arXiv 2404.07143): segments and a memory of earlier ones.

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, the result
gets a separate row and is recorded only with --record.
"""

from lra.configs import base

get_config = base.of(
    'infini', pooling='mean',
    segment_size=lambda c: base.by_size(c, 256, mini=8))
