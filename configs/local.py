"""Local (arXiv 2011.04006): softmax attention within blocks of 50 tokens.

Blocks have the size of the Long Range Arena release. With CLS pooling the CLS
token sees only its own block; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of('local', block_size=lambda c: base.by_size(c, 50, mini=16))
