"""cosFormer (arXiv 2202.08791): ReLU features, faded by a cosine of distance.

python run_lra.py --config=configs/cosformer.py:listops_mini

The paper adds no settings to those of the protocol. The authors' laboratory
published some for Long Range Arena (OpenNLPLab/lra). Its ListOps has 6 layers
of 128 channels, batches of 50, learning rate 0.01, weight decay 0.01 and 40
epochs. Here all mechanisms use the settings of each protocol.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'cosformer')
