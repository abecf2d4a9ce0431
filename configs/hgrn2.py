"""HGRN2 (arXiv 2404.07904): a gated recurrence with outer products as state.

python run_lra.py --config=configs/hgrn2.py:listops_mini

The authors' settings for Long Range Arena have no weight decay. On ListOps they
have 5 layers of width 64 and heads of width 4. On Text they have 4 layers of
width 128 and heads of width 8, on Retrieval 2 layers of width 256 and heads of
width 2.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'hgrn2')
