"""S5 (arXiv 2208.04933): a state space with many inputs and outputs.

Groups of parameters of the authors, for ssm_learning_rate R and
ssm_weight_decay 0:
  standard: train.ssm_learning_rate=R, train.ssm_weight_decay=0
  BfastandCdecay: also train.ssm_parameters=('lambda_real',
    'lambda_imaginary', 'log_step'), so that B trains as C does
  BandCdecay: also optim.groups=(('.*/mixer/b', {'learning_rate': R}),
    ('.*', {})), so that B trains slowly, with weight decay
  dt_global: train.ssm_parameters without 'log_step'
"""

from lra.configs import base

get_config = base.of('s5')
