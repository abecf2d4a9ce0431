"""RetNet (arXiv 2307.08621): linear attention with fixed decays and rotation.

`value_width` equal to the width makes a layer about as large as one of the
Transformer.
"""

from lra.configs import base

get_config = base.of('retnet')
