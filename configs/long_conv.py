"""Long convolutions (arXiv 2302.06646), whose taps are parameters.

The authors' settings for Long Range Arena have thresholds (`squash`) of 0.001
to 0.004 and drop 0.1 to 0.3 of the taps.
"""

from lra.configs import base

get_config = base.of('long_conv')
