"""DeltaNet (arXiv 2406.06484): linear attention with the delta rule.

python run_lra.py --config=configs/deltanet.py:listops_mini

The paper has no settings for Long Range Arena. With `negative_eigenvalues` the
model can learn parity (arXiv 2411.12537).
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'deltanet')
