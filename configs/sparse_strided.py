"""Sparse Transformer, strided (arXiv 1904.10509): near, and in strides.

python run_lra.py --config=configs/sparse_strided.py:listops_mini

The paper takes "a stride close to sqrt(n)" (section 4.3). The Long Range Arena
release has only the fixed pattern. With `protocol=lra` the CLS token sees, and
is seen by, all tokens, as in that release.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'sparse_strided')
  # Each half of the heads has its own pattern, so there are at least two.
  config.model.num_heads = max(config.model.num_heads, 2)
  return config
