"""RWKV-7 (arXiv 2503.14456): a generalised delta rule."""

from lra.configs import base

get_config = base.of('rwkv7')
