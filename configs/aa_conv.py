"""Attention-augmented convolution (arXiv 1904.09925): both side by side."""

from lra.configs import base

get_config = base.of('aa_conv')
