"""ETC (arXiv 2004.08483): a window with relative positions, global tokens.

Radius and distances as in the authors' base model.
"""

from lra.configs import base

get_config = base.of(
    'etc', radius=lambda c: base.by_size(c, 84, mini=16), num_global=1)
