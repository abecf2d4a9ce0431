"""Sliding window (arXiv 2004.05150): neighbours on both sides.

256 neighbours on either side, Longformer's window of 512. With CLS pooling the
CLS token sees only its neighbours; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'sliding_window', radius=lambda c: base.by_size(c, 256, mini=32))
