"""Cross attention (arXiv 1810.00825): latents read tokens and write back."""

from lra.configs import base

get_config = base.of(
    'cross', num_latents=lambda c: base.by_size(c, 64, mini=16))
