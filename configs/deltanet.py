"""DeltaNet (arXiv 2406.06484): linear attention with the delta rule.

With `negative_eigenvalues` the model can learn parity (arXiv 2411.12537).
"""

from lra.configs import base

get_config = base.of('deltanet')
