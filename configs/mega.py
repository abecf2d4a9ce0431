"""Mega (arXiv 2209.10655): gated attention over damped moving averages.

The authors' settings for Long Range Arena have `attention` softmax on the tasks
of text and laplace on those of pixels.
"""

from lra.configs import base

get_config = base.of('mega')
