"""Attention sinks (arXiv 2309.17453): a window and the first tokens.

The window is that of configs/sliding_window.py. With CLS pooling the CLS token
sees only its neighbours; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'attention_sink', radius=lambda c: base.by_size(c, 256, mini=32))
