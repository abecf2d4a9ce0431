"""Compressive Transformer (arXiv 1911.05507): older segments as summaries.

Sequences are pooled over their tokens, because the first position of a causal
model sees only itself. A protocol that reads CLS gives it a separate row.
"""

import math

from lra.configs import base

get_config = base.of(
    'compressive', pooling='mean',
    segment_size=lambda c: base.by_size(c, 128, mini=8),
    rate=lambda c: base.derived(
        lambda size: math.gcd(4, size), c.model.get_ref('segment_size')))
