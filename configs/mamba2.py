"""Mamba-2 (arXiv 2405.21060): a state space with input-dependent time steps."""

from lra.configs import base

get_config = base.of('mamba2')
