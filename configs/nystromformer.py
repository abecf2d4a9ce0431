"""Nystromformer (arXiv 2102.03902): softmax attention through landmarks.

As in the released code for LRA, which also has 32, 128 and 256 landmarks.
"""

from lra.configs import base

get_config = base.of(
    'nystromformer', num_landmarks=lambda c: base.by_size(c, 64, mini=16))
