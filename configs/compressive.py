"""Compressive Transformer (arXiv 1911.05507): older segments as summaries.

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, the result
gets a separate row and is recorded only with --record.
"""

import math

from lra.configs import base

get_config = base.of(
    'compressive', pooling='mean',
    segment_size=lambda c: base.by_size(c, 128, mini=8),
    rate=lambda c: base.derived(
        lambda size: math.gcd(4, size), c.model.get_ref('segment_size')))
