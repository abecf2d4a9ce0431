"""Attention sinks (arXiv 2309.17453): a window and the first tokens.

With CLS pooling, CLS sees only its neighbours: see
--config.encoder.pooling=mean.
"""

from lra.configs import base

get_config = base.of(
    'attention_sink', radius=lambda c: base.by_size(c, 256, mini=32))
