"""Performer (arXiv 2009.14794): softmax attention from random features.

The defaults of the authors' code. The Long Range Arena release has exponential
features on ListOps alone, 2 of them; elsewhere its features are not random.
"""

from lra.configs import base

get_config = base.of(
    'performer', num_features=lambda c: base.num_features(c, 256))
