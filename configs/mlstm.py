"""mLSTM (arXiv 2405.04517): xLSTM's matrix memory with exponential gates.

python run_lra.py --config=configs/mlstm.py:listops_mini

No settings for Long Range Arena are released.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'mlstm')
