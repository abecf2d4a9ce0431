"""Mega (arXiv 2209.10655): gated attention over damped moving averages.

python run_lra.py --config=configs/mega.py:listops_mini

The authors' settings for Long Range Arena have `attention` softmax on the tasks
of text and laplace on those of pixels. Their `truncation` is 1,024 taps, on
Path-X 4,096.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'mega')
