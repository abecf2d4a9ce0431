"""SimpleTRON-ResL (arXiv 2111.15588): with a skip and an output projection."""

from lra.configs import base

get_config = base.of('simpletron_resl', qkv_width=base.encoder_width)
