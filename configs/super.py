"""Super attention (arXiv 2403.01643): values are mixed along the length."""

from lra.configs import base

get_config = base.of('super')
