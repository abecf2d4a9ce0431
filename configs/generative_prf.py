"""Generative-PRF (arXiv 2110.08323): a kernel from a generator, positive."""

from lra.configs import base

get_config = base.of(
    'generative_prf', num_features=lambda c: base.num_features(
        c, 4 * base.head_width(c)))
