"""Kimi Delta Attention (arXiv 2510.26692): a decay of each key channel."""

from lra.configs import base

get_config = base.of('kda')
