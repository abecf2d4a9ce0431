"""ALiBi (arXiv 2108.12409): attention that fades with distance."""

from lra.configs import base

get_config = base.of('transformer_alibi')
