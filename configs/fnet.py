"""FNet (arXiv 2105.03824): a Fourier transform in place of attention."""

from lra.configs import base

get_config = base.of('fnet')
