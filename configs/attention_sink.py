"""Attention sinks (arXiv 2309.17453): a window and the first tokens.

python run_lra.py --config=configs/attention_sink.py:listops_mini

4 sinks, as in the paper (section 3.2), and the window of
`configs/sliding_window.py`. With CLS pooling the CLS token sees only its
neighbours; to use the whole sequence add --config.encoder.pooling=mean.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'attention_sink')
  config.model.radius = base.by_size(config, 256, mini=32)
  return config
