"""Lightning attention (MiniMax-01, arXiv 2501.08313): causal, with decay.

python run_lra.py --config=configs/lightning.py:listops_mini

Reaches 55.5 % (baseline 22.3 %).

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, this changes
the protocol: the result gets a separate row and is recorded only with --record.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'lightning'
  config.model.kernel = 'auto'
  config.model.direction = 'causal'
  config.model.decay = True
  # True shrinks the decay with depth, as in the released model MiniMax-01;
  # False has one decay for all layers (Qin et al., arXiv 2401.04658).
  config.model.decay_by_depth = False
  config.model.gate = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.encoder.pooling = 'mean'
  return config
