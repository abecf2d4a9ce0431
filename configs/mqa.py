"""Multi-query attention (arXiv 1911.02150): one head of keys and values."""

from lra.configs import base

get_config = base.of('mqa')
