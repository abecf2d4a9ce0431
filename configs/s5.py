"""S5 (arXiv 2208.04933): a state space with many inputs and outputs.

python run_lra.py --config=configs/s5.py:listops_mini

The authors' settings for Long Range Arena differ by task: on ListOps 8 layers
of 128 channels, 16 states in 8 blocks and half_glu2; on Path-X 256 states in 16
blocks, `c_init` complex and `dt_min` 0.0001.

Their groups of parameters, for ssm_learning_rate R and ssm_weight_decay 0:
  standard: train.ssm_learning_rate=R, train.ssm_weight_decay=0
  BfastandCdecay: also train.ssm_parameters=('lambda_real',
    'lambda_imaginary', 'log_step'), so that B trains as C does
  BandCdecay: also optim.groups=(('.*/mixer/b', {'learning_rate': R}),
    ('.*', {})), so that B trains slowly, with weight decay
  dt_global: train.ssm_parameters without 'log_step'
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 's5')
