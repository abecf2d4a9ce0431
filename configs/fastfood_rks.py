"""FastFood-RKS (arXiv 2110.08323): a learned kernel, cosines and sines."""

from lra.configs import base

get_config = base.of(
    'fastfood_rks', num_features=lambda c: base.num_features(
        c, 2 * base.head_width(c)))
