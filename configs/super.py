"""Super attention (arXiv 2403.01643): efficient, values mixed along length.

python run_lra.py --config=configs/super.py:listops_mini

The head is as wide as the encoder, so no field sets the heads. The length is
that of the task.
"""

from configs import base


def get_config(arg=''):
  return base.get_config(arg, 'super')
