"""SimpleTRON-Res (arXiv 2111.15588): with a skip inside the attention layer."""

from lra.configs import base

get_config = base.of('simpletron_res', qkv_width=base.encoder_width)
