"""DuoAttention (arXiv 2410.10819): full heads mixed with streaming ones."""

from lra.configs import base

get_config = base.of('duo', radius=lambda c: base.by_size(c, 256, mini=32))
