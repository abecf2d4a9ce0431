"""HGRN2 (arXiv 2404.07904): a gated recurrence with outer products as state.

python run_lra.py --config=configs/hgrn2.py:listops_mini

The authors' settings for Long Range Arena have no weight decay; heads of width
4 and 5 layers of width 64 on ListOps, of width 8 and 4 layers of width 128 on
Text, and of width 2 and 2 layers of width 256 on Retrieval.
"""

from configs import base


def get_config(arg=''):
  return base.get_config(arg, 'hgrn2')
