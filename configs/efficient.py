"""Efficient attention (arXiv 2403.01643): one head, projecting queries only."""

from lra.configs import base

get_config = base.of('efficient')
