"""Transformer (arXiv 1706.03762): softmax attention over all positions.

python run_lra.py --config=configs/transformer.py:listops_mini

With `protocol=lra` (the code of Long Range Arena) the projections of queries,
keys and values have no biases. With `lra` and `nystrom` attention weights have
a dropout rate of 0.1.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'transformer')
