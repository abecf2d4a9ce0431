"""Graph attention (arXiv 1710.10903) on the chain of tokens.

With CLS pooling, CLS sees only its neighbours: see
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of('gat', radius=lambda c: base.by_size(c, 256, mini=32))
