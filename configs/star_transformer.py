"""Star-Transformer (arXiv 1902.09113): a ring of neighbours, and a relay.

python run_lra.py --config=configs/star_transformer.py:listops_mini

Two rounds in each mixer: in the second, the satellites read the information
that the relay gathered from all of them.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'star_transformer')
  config.model.rounds = 2
  return config
