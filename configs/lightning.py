"""Lightning attention (MiniMax-01, arXiv 2501.08313): causal, with decay.

python run_lra.py --config=configs/lightning.py:listops_mini

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, this changes
the protocol: the result gets a separate row and is recorded only with --record.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'lightning')
  config.encoder.pooling = 'mean'
  return config
