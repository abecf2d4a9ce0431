"""Conformer (arXiv 2005.08100): self-attention, then a gated convolution."""

from lra.configs import base

get_config = base.of('conformer')
