"""sinkhorn on any task: blocks of 50, as in Long Range Arena's released code.

python run_lra.py --config=configs/sinkhorn.py:text_mini

Temperature 0.75 and 7 iterations are within the ranges which the paper (Tay et
al. 2020, arXiv 2002.11296) explores. The sorting network's hidden layer has the
width of a head, where the paper has that of the model, to keep the parameters
near the Transformer's.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'sinkhorn'
  config.model.block_size = 16 if config.task.endswith('_mini') else 50
  config.model.iterations = 7
  config.model.temperature = 0.75
  config.model.sort_width = config.model.qkv_width // config.model.num_heads
  config.model.qkv_bias = config.protocol != 'lra'
  return config
