"""GLA (arXiv 2312.06635): linear attention with a gate of each channel."""

from lra.configs import base

get_config = base.of('gla')
