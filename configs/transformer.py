"""Transformer on any task, at the sizes of the protocol.

python run_lra.py --config=configs/transformer.py:listops_mini

Under `protocol=lra` (Long Range Arena's code) the projections of queries, keys
and values have no biases and attention weights are dropped at rate 0.1.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  lra = config.protocol == 'lra'
  config.model.name = 'transformer'
  config.model.kernel = 'auto'
  config.model.qkv_bias = not lra
  config.model.attention_dropout = 0.1 if lra else 0.0
  return config
