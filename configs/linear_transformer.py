"""Linear Transformer (arXiv 2006.16236): features elu(x) + 1."""

from lra.configs import base

get_config = base.of('linear_transformer')
