"""Selective attention (arXiv 2410.02703): tokens mark others as done with.

python run_lra.py --config=configs/selective.py:listops_mini

Reaches 53.8 % (floor 22.3 %).

It has no settings of its own. All tokens may be attended to, as an encoder's
task wants it; the paper's language models are causal, for which add
--config.model.direction=causal --config.encoder.pooling=mean
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'selective'
  config.model.direction = 'bidirectional'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
