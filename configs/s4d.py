"""S4D (arXiv 2206.11893): convolutions whose kernels are sums of exponentials.

The authors' settings for Long Range Arena have 4 states on the tasks of text
and 64 on those of pixels; Path-X has `dt_min` 0.0001.
"""

from lra.configs import base

get_config = base.of('s4d')
