"""LION (arXiv 2502.16249): linear attention with decay in both directions.

python run_lra.py --config=configs/lion.py:listops_mini

This is LION-S. --config.model.decay=fixed makes it LION-D, `none` LION-LIT. On
Long Range Arena the authors use the sizes of S5, AdamW with a cosine schedule
from 0.0005, and gates that start near 1. Here --config.model.memory=long comes
nearest to such gates.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'lion')
