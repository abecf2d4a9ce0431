"""Lightning attention (MiniMax-01, arXiv 2501.08313): causal, with decay.

python run_lra.py --config=configs/lightning.py:listops_mini

Reaches 55.5 % (floor 22.3 %).

The first position of a causal model sees nothing, so sequences are pooled over
their tokens instead of read from CLS. Where the protocol reads CLS, this is a
change of it: the row stands apart, and is recorded with --record only.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'lightning'
  config.model.kernel = 'auto'
  config.model.direction = 'causal'
  config.model.decay = True
  # True lets the decay shrink with depth, as the released model MiniMax-01
  # does; False is the same in every layer (Qin et al., arXiv 2401.04658).
  config.model.decay_by_depth = False
  config.model.gate = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.encoder.pooling = 'mean'
  return config
