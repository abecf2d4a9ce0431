"""cosFormer (arXiv 2202.08791): ReLU features, faded by a cosine of distance.

python run_lra.py --config=configs/cosformer.py:listops_mini

Reaches 47.2 % (floor 22.3 %).

It has no settings of its own. The authors' laboratory published some for Long
Range Arena (OpenNLPLab/lra: ListOps with 6 layers of 128 channels, batches of
50, a rate of 0.01 and a decay of 0.01, 40 epochs); here each protocol's are
used, for all mechanisms the same.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'cosformer'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
