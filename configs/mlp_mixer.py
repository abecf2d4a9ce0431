"""MLP-Mixer (arXiv 2105.01601): a perceptron across positions."""

from lra.configs import base

get_config = base.of(
    'mlp_mixer', hidden=lambda c: base.by_size(c, 256, mini=32))
