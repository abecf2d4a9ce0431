"""Infini-attention (arXiv 2404.07143): segments and a memory of earlier ones.

python run_lra.py --config=configs/infini.py:listops_mini

Segments of 256 tokens, 8 on the mini tasks. The paper has 2,048, with texts
longer in proportion.

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, this changes
the protocol: the result gets a separate row and is recorded only with --record.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'infini')
  config.model.segment_size = base.by_size(config, 256, mini=8)
  config.encoder.pooling = 'mean'
  return config
