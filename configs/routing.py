"""Routing Transformer (arXiv 2003.05997): attention within k-means clusters.

python run_lra.py --config=configs/routing.py:listops_mini

There are about sqrt(L) clusters, each with about sqrt(L) queries and keys: the
cheapest choice (section 4.1). Half of the heads are local, as in the paper.
"""

import math

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'routing')
  length = base.length(config)
  config.model.num_clusters = base.derived(
      lambda L: max(math.isqrt(L), 1), length)
  config.model.cluster_size = base.derived(
      lambda L, clusters: -(-L // clusters), length,
      config.model.get_ref('num_clusters'))
  config.model.local_heads = base.derived(
      lambda heads: heads // 2, config.model.get_ref('num_heads'))
  config.model.radius = base.by_size(config, 64, mini=16)
  return config
