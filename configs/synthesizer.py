"""Dense Synthesizer (arXiv 2005.00743): weights from each token alone.

python run_lra.py --config=configs/synthesizer.py:listops_mini

The first variant of the paper. The Long Range Arena release adds the random one
to dot-product attention; factorised, it has rank 32.
"""

from configs import base


def get_config(arg=''):
  return base.get_config(arg, 'synthesizer')
