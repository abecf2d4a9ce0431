"""Super attention (arXiv 2403.01643): values are mixed along the length.

python run_lra.py --config=configs/super.py:listops_mini

It is efficient attention (`configs/efficient.py`) with a matrix [L, L] on the
values. The head is as wide as the encoder, so no field sets the heads. The
length L is that of the task.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'super')
