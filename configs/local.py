"""Local (arXiv 2011.04006): softmax attention within blocks of 50 tokens.

Blocks of the Long Range Arena release. With CLS pooling, CLS sees only its own:
see --config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of('local', block_size=lambda c: base.by_size(c, 50, mini=16))
