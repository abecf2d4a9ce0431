"""MetaLA (arXiv 2411.10741): gated linear attention without keys.

python run_lra.py --config=configs/metala.py:listops_mini

The authors' settings for Long Range Arena have 4 heads. On ListOps they are
causal, with 6 layers of width 32 and `key_width` 16; on Text they have 4 layers
of width 128.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'metala')
