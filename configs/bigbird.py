"""BigBird (arXiv 2007.14062): neighbouring, global and random blocks of keys.

Blocks as in the paper's base model (appendix E) and the LRA release.
"""

from lra.configs import base

get_config = base.of(
    'bigbird', block_size=lambda c: base.by_size(c, 64, mini=8))
