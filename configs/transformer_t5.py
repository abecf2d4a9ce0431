"""T5 attention (arXiv 1910.10683): a learned bias for each distance."""

from lra.configs import base

get_config = base.of('transformer_t5')
