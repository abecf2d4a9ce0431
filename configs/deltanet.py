"""DeltaNet (arXiv 2406.06484): linear attention with the delta rule."""

from lra.configs import base

get_config = base.of('deltanet')
