"""Dense Synthesizer (arXiv 2005.00743): weights from each token alone.

python run_lra.py --config=configs/synthesizer.py:listops_mini

Reaches 46.8 % (baseline 22.3 %).

The first variant of the paper. The Long Range Arena release adds the random one
to dot-product attention; factorised, it has rank 32.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'synthesizer'
  # dense, random, factorised_dense or factorised_random.
  config.model.variant = 'dense'
  config.model.rank = 32  # used by factorised_random
  # False keeps the initial logits of the random variants.
  config.model.trainable = True
  config.model.kernel = 'auto'
  return config
