"""S5 (arXiv 2208.04933): a state space with many inputs and outputs.

python run_lra.py --config=configs/s5.py:listops_mini

The authors' settings for Long Range Arena differ by task: on ListOps 8 layers
of 128 channels, 16 states in 8 blocks and half_glu2; on Path-X 256 states in 16
blocks, `c_init` complex and `dt_min` 0.0001.
"""

from configs import base


def get_config(arg=''):
  return base.get_config(arg, 's5')
