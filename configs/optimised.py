"""Optimised attention (arXiv 2403.01643): no projection of values."""

from lra.configs import base

get_config = base.of('optimised')
