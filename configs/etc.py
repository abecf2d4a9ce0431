"""ETC (arXiv 2004.08483): a window with relative positions, global tokens.

python run_lra.py --config=configs/etc.py:listops_mini

84 positions on either side and separate vectors for distances up to 12, as in
the authors' base model. The global token is CLS, or the first token without
CLS.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'etc')
  config.model.radius = base.by_size(config, 84, mini=16)
  config.model.num_global = 1
  return config
