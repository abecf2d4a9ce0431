"""Nystromformer (arXiv 2102.03902): softmax attention through landmarks.

python run_lra.py --config=configs/nystromformer.py:listops_mini

M = 64 landmarks, six iterations and a convolution of width 35 over the values,
as in the released code for Long Range Arena. That code also has settings of 32,
128 and 256 landmarks. The mini tasks have 16.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'nystromformer')
  config.model.num_landmarks = base.by_size(config, 64, mini=16)
  return config
