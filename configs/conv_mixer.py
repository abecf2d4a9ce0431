"""ConvMixer (arXiv 2201.09792): a depth-wise convolution over positions.

python run_lra.py --config=configs/conv_mixer.py:listops_mini

Reaches 40.6 % (baseline 22.3 %).

K = 9, as in the paper's ConvMixer-1536/20.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'conv_mixer'
  config.model.conv_width = 9
  del config.model.num_heads, config.model.qkv_width  # there are no heads
  return config
