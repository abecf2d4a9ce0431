"""Selective attention (arXiv 2410.02703): tokens mark others as not needed.

The paper's language models are causal; for this add
--config.model.direction=causal --config.encoder.pooling=mean
"""

from lra.configs import base

get_config = base.of('selective')
