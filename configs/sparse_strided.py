"""sparse_strided on any task: a stride of sqrt(L).

python run_lra.py --config=configs/sparse_strided.py:text_mini

The paper takes "a stride close to sqrt(n)" (Child et al. 2019, arXiv
1904.10509, section 4.3). Long Range Arena's released code has the fixed pattern
only; like that, `protocol=lra` makes the CLS token global.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'sparse_strided'
  config.model.stride = 0
  config.model.num_global = int(config.protocol == 'lra')
  config.model.qkv_bias = config.protocol != 'lra'
  return config
