"""Transformer (arXiv 1706.03762): softmax attention over all positions.

With `protocol=lra` projections have no biases; with `lra` and `nystrom`
attention weights have a dropout rate of 0.1.
"""

from lra.configs import base

get_config = base.of('transformer')
