"""LION (arXiv 2502.16249): linear attention with decay in both directions.

python run_lra.py --config=configs/lion.py:listops_mini

This is LION-S. --config.model.decay=fixed is LION-D, none is LION-LIT. On Long
Range Arena the authors use the sizes of S5, AdamW with a learning rate of
0.0005 on a cosine, and gates that start near 1; --config.model.memory=long is
the nearest to it here.
"""

from configs import base


def get_config(arg=''):
  return base.get_config(arg, 'lion')
