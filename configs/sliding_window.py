"""Sliding window (arXiv 2004.05150): neighbours on both sides.

Longformer's window of 512. With CLS pooling, CLS sees only its neighbours: see
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'sliding_window', radius=lambda c: base.by_size(c, 256, mini=32))
