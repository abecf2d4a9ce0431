"""RetNet (arXiv 2307.08621): linear attention with fixed decays and rotation.

With `value_width` = D a layer is about as large as the Transformer's.
"""

from lra.configs import base

get_config = base.of('retnet')
