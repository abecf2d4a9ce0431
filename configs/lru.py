"""LRU (arXiv 2303.06349): a linear recurrence with complex decays.

Path-X needs `r_min` 0.999, `r_max` 0.9999 and `max_phase` 0.31 in a later
reproduction.
"""

from lra.configs import base

get_config = base.of('lru')
