"""Routing Transformer (arXiv 2003.05997): attention within k-means clusters.

About sqrt(L) clusters of sqrt(L) are the cheapest choice (section 4.1). Half of
the heads are local, as in the paper.
"""

import math

from lra.configs import base

get_config = base.of(
    'routing',
    num_clusters=lambda c: base.derived(
        lambda L: max(math.isqrt(L), 1), base.length(c)),
    cluster_size=lambda c: base.derived(
        lambda L, clusters: -(-L // clusters), base.length(c),
        c.model.get_ref('num_clusters')),
    local_heads=lambda c: base.derived(
        lambda heads: heads // 2, c.model.get_ref('num_heads')),
    radius=lambda c: base.by_size(c, 64, mini=16))
