"""Cross attention (arXiv 1810.00825): latents read the tokens and write back.

python run_lra.py --config=configs/cross.py:listops_mini

64 latents; the mini tasks have 16, fewer than tokens.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'cross')
  config.model.num_latents = base.by_size(config, 64, mini=16)
  return config
