"""DuoAttention (arXiv 2410.10819): full heads mixed with streaming ones.

python run_lra.py --config=configs/duo.py:listops_mini

4 sinks and the window of `configs/attention_sink.py`. The authors' script, for
large language models, has 128 sinks and the last 256 tokens.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'duo')
  config.model.radius = base.by_size(config, 256, mini=32)
  return config
