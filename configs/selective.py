"""Selective attention (arXiv 2410.02703): tokens mark others as not needed.

python run_lra.py --config=configs/selective.py:listops_mini

The paper adds no settings. Tokens attend to all tokens, as in an encoder. The
paper's language models are causal; for this add
--config.model.direction=causal --config.encoder.pooling=mean
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'selective')
