"""Sliding window, multi-query (arXiv 1911.02150): one key-value head.

With CLS pooling, CLS sees only its neighbours: see
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'sliding_window_mqa', radius=lambda c: base.by_size(c, 256, mini=32))
