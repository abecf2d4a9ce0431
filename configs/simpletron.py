"""SimpleTRON (arXiv 2111.15588): attention without softmax, Q (K^T V)."""

from lra.configs import base

get_config = base.of('simpletron', qkv_width=base.encoder_width)
