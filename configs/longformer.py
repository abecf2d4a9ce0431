"""Longformer (arXiv 2004.05150): a window of 512 and a global CLS token.

The paper's window (section 3.1 and table 12) and that of the LRA release.
"""

from lra.configs import base

get_config = base.of(
    'longformer', window=lambda c: base.by_size(c, 512, mini=64),
    num_global=1,
    without=('dilation',))
