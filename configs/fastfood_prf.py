"""FastFood-PRF (arXiv 2110.08323): a learned kernel, positive features."""

from lra.configs import base

get_config = base.of(
    'fastfood_prf', num_features=lambda c: base.num_features(
        c, base.head_width(c)))
