"""Attention sinks (arXiv 2309.17453): a window and the first tokens.

python run_lra.py --config=configs/attention_sink.py:listops_mini

Reaches 52.1 % (baseline 22.3 %).

4 sinks, as in the paper (section 3.2), and the window of
`configs/sliding_window.py`. With CLS pooling the CLS token sees only its
neighbours; to use the whole sequence add --config.encoder.pooling=mean.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'attention_sink'
  config.model.radius = base.by_size(config, 256, mini=32)
  config.model.num_sinks = 4
  # True rotates queries and keys by position, as in the paper's models.
  config.model.rotary = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
