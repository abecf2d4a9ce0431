"""Efficient attention (arXiv 1812.01243): two softmaxes, Q (K^T V)."""

from lra.configs import base

get_config = base.of('shen')
