"""Dense Synthesizer (arXiv 2005.00743) on any task.

The paper's first variant. The Long Range Arena release runs its random one
added to dot-product attention, with rank 32 where it is factorised.

python run_lra.py --config=configs/synthesizer.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'synthesizer'
  # dense, random, factorised_dense or factorised_random
  config.model.variant = 'dense'
  config.model.rank = 32  # of factorised_random
  config.model.kernel = 'auto'
  return config
