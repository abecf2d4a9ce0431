"""Linformer (arXiv 2006.04768): keys and values projected along the length.

M and the shared matrix are those of the paper and of the Long Range Arena
release, whose default is 16; more would double a mini model's parameters.
"""

from lra.configs import base

get_config = base.of(
    'linformer', num_landmarks=lambda c: base.by_size(c, 256, mini=16))
