"""DeltaProduct (arXiv 2502.10297): several delta steps for each token."""

from lra.configs import base

get_config = base.of('deltaproduct')
