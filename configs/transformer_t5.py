"""T5 attention (arXiv 1910.10683): a learned bias for each distance.

python run_lra.py --config=configs/transformer_t5.py:listops_mini

32 buckets up to a distance of 128, as in the paper.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'transformer_t5')
