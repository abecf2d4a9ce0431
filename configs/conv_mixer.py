"""ConvMixer (arXiv 2201.09792): a depth-wise convolution over positions.

python run_lra.py --config=configs/conv_mixer.py:listops_mini

K = 9, as in the paper's ConvMixer-1536/20.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'conv_mixer')
