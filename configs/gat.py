"""Graph attention (arXiv 1710.10903) on the chain of tokens.

python run_lra.py --config=configs/gat.py:listops_mini

The neighbours are those of `configs/sliding_window.py`, so both models attend
to the same tokens. `--config.model.radius=1` is the chain itself: one neighbour
on either side. With CLS pooling the CLS token sees only its neighbours; to use
the whole sequence add --config.encoder.pooling=mean.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'gat')
  config.model.radius = base.by_size(config, 256, mini=32)
  return config
