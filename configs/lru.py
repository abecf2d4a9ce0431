"""LRU (arXiv 2303.06349): a linear recurrence with complex decays.

python run_lra.py --config=configs/lru.py:listops_mini

Path-X needs decays near 1 and small phases: `r_min` 0.999, `r_max` 0.9999 and
`max_phase` 0.31 in a later reproduction.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'lru')
