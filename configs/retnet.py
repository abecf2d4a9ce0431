"""RetNet (arXiv 2307.08621): linear attention with fixed decays and rotation.

python run_lra.py --config=configs/retnet.py:listops_mini

The paper has no settings for Long Range Arena. `value_width` equal to the width
makes a layer about as large as one of the Transformer.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'retnet')
