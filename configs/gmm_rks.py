"""GMM-RKS (arXiv 2110.08323): a Gaussian mixture as kernel, in cosines.

Each frequency gives a cosine and a sine. For ListOps the released code has four
times as many; it has one Gaussian per head.
"""

from lra.configs import base

get_config = base.of(
    'gmm_rks', num_features=lambda c: base.num_features(
        c, 2 * base.head_width(c)))
