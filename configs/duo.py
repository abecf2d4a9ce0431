"""DuoAttention (arXiv 2410.10819): full heads mixed with streaming ones.

python run_lra.py --config=configs/duo.py:listops_mini

Reaches 52.4 % (baseline 22.3 %).

4 sinks and the window of `configs/attention_sink.py`. The authors' script, for
large language models, has 128 sinks and the last 256 tokens.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'duo'
  config.model.kernel = 'auto'
  config.model.radius = base.by_size(config, 256, mini=32)
  config.model.num_sinks = 4
  # True rotates queries and keys by position, as in the paper's models.
  config.model.rotary = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
