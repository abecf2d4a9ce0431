"""ConvMixer (arXiv 2201.09792): a depth-wise convolution over positions."""

from lra.configs import base

get_config = base.of('conv_mixer')
