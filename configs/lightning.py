"""Lightning attention on any task, at the sizes of the protocol.

python run_lra.py --config=configs/lightning.py:listops_mini

A causal model's first position sees nothing, so its sequences are pooled over
their tokens instead of read from CLS.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'lightning'
  config.model.kernel = 'auto'
  config.model.direction = 'causal'
  config.model.decay = True
  config.model.gate = False
  config.encoder.pooling = 'mean'
  return config
