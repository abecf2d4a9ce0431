"""Multi-query attention (arXiv 1911.02150): one head of keys and values.

python run_lra.py --config=configs/mqa.py:listops_mini

Heads and widths are the Transformer's; the paper adds no settings. The paper
widens the MLP to keep the number of parameters; here all models share one
encoder, so there are fewer parameters.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'mqa')
