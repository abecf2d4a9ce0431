"""Star-Transformer (arXiv 1902.09113): a ring of neighbours, and a relay."""

from lra.configs import base

get_config = base.of('star_transformer', rounds=2)
