"""Sliding window, multi-query (arXiv 1911.02150): one key-value head.

The window is that of configs/sliding_window.py. With CLS pooling the CLS token
sees only its neighbours; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'sliding_window_mqa', radius=lambda c: base.by_size(c, 256, mini=32))
