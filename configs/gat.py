"""Graph attention (arXiv 1710.10903) on the chain of tokens.

The neighbours are those of configs/sliding_window.py. With CLS pooling the CLS
token sees only its neighbours; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of('gat', radius=lambda c: base.by_size(c, 256, mini=32))
