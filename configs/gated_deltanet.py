"""Gated DeltaNet (arXiv 2412.06464): a delta rule whose state decays."""

from lra.configs import base

get_config = base.of('gated_deltanet')
