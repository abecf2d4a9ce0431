"""Additive attention (arXiv 1409.0473): logits from tanh(query + key)."""

from lra.configs import base

get_config = base.of('additive')
