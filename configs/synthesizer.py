"""Dense Synthesizer (arXiv 2005.00743): weights from each token alone.

python run_lra.py --config=configs/synthesizer.py:listops_mini

This is the paper's first variant. The Long Range Arena release adds a random
variant to dot-product attention, of rank 32 if factorised.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'synthesizer')
