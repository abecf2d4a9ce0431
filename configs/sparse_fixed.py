"""sparse_fixed on any task: blocks of sqrt(L) with summaries of 8.

python run_lra.py --config=configs/sparse_fixed.py:text_mini

The paper takes summaries of 8 to 32 positions in blocks of 128 and 256 (Child
et al. 2019, arXiv 1904.10509, section 4.3); here blocks are about 64. Long
Range Arena's released code has blocks of 128 with summaries of 32, masked to be
causal, and lets the CLS token see and be seen by all, as does `protocol=lra`.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'sparse_fixed'
  config.model.stride = 0
  config.model.summary = 2 if config.task.endswith('_mini') else 8
  config.model.num_global = int(config.protocol == 'lra')
  config.model.qkv_bias = config.protocol != 'lra'
  return config
