"""Local-p attention (arXiv 1508.04025): each token predicts where to look."""

from lra.configs import base

get_config = base.of('luong_local')
