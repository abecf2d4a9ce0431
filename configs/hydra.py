"""Hydra (arXiv 2407.09941): two shifted state spaces and a diagonal."""

from lra.configs import base

get_config = base.of('hydra')
