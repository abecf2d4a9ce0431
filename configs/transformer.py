"""Transformer (arXiv 1706.03762): softmax attention over all positions."""

from lra.configs import base

get_config = base.of('transformer')
