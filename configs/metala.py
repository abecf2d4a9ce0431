"""MetaLA (arXiv 2411.10741): gated linear attention without keys.

python run_lra.py --config=configs/metala.py:listops_mini

The authors' settings for Long Range Arena have 4 heads; on ListOps 6 layers of
width 32 with `key_width` 16 in direction causal, on Text 4 layers of width 128.
"""

from configs import base


def get_config(arg=''):
  return base.get_config(arg, 'metala')
