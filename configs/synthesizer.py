"""Dense Synthesizer (arXiv 2005.00743): weights from each token alone."""

from lra.configs import base

get_config = base.of('synthesizer')
