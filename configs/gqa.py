"""Grouped-query attention (arXiv 2305.13245): heads share keys and values.

python run_lra.py --config=configs/gqa.py:listops_mini

Two heads of queries share one head of keys and values, so with four
heads or more the model differs from multi-query attention. On a task with two
heads, such as image_mini, it equals multi-query attention. With one head, both
equal the Transformer. The paper has 64 heads in groups of eight.
To change the number: --config.model.num_kv_heads=1
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'gqa')
  config.model.num_kv_heads = base.derived(
      lambda heads: max(heads // 2, 1), config.model.get_ref('num_heads'))
  return config
