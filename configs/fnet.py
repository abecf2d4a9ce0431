"""FNet (arXiv 2105.03824): a Fourier transform in place of attention.

python run_lra.py --config=configs/fnet.py:listops_mini

The mixer has no parameters; the model has those of embedding, MLPs and head.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'fnet')
