"""Generative-RKS (arXiv 2110.08323): a kernel from a generator, in cosines.

Each frequency gives a cosine and a sine. On a CPU so many features take longer
than softmax attention over 4,000 tokens; see lra/results/speed.md.
"""

from lra.configs import base

get_config = base.of(
    'generative_rks', num_features=lambda c: base.num_features(
        c, 8 * base.head_width(c)))
