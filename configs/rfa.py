"""Random feature attention (arXiv 2103.02143): cosines and sines of q and k.

M = 64, as in the authors' code. The gated variant is causal: it also needs
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'rfa', num_features=lambda c: base.num_features(c, 64),
    # It has no effect, but it is part of old records.
    chunk_size=lambda c: base.by_size(c, 64, mini=16))
