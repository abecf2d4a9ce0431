"""GMM-PRF (arXiv 2110.08323): a Gaussian mixture as kernel, positive."""

from lra.configs import base

get_config = base.of(
    'gmm_prf', num_features=lambda c: base.num_features(
        c, 4 * base.head_width(c)))
