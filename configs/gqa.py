"""Grouped-query attention (arXiv 2305.13245): heads share keys and values.

python run_lra.py --config=configs/gqa.py:listops_mini

Reaches 52.5 % (floor 22.3 %).

Two heads of queries share one of keys and values, so that it differs from
multi-query attention with as few as four heads; where a task has two, as
image_mini has, it is the same, and where it has one both are the Transformer.
The paper's 64 heads are in groups of eight.
Another number: --config.model.num_kv_heads=1
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'gqa'
  config.model.num_kv_heads = base.derived(
      lambda heads: max(heads // 2, 1), config.model.get_ref('num_heads'))
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
