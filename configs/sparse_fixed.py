"""Sparse Transformer, fixed (arXiv 1904.10509): blocks and their summaries.

python run_lra.py --config=configs/sparse_fixed.py:listops_mini

The paper takes summaries of 8 to 32 positions in blocks of 128 and 256 (section
4.3). Here they are 8 in blocks of sqrt(L), about 64. The Long Range Arena
release has summaries of 32 in blocks of 128, masked to be causal. Its CLS token
sees, and is seen by, all tokens; `protocol=lra` does the same.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'sparse_fixed')
  # Each half of the heads has its own pattern, so there are at least two.
  config.model.num_heads = max(config.model.num_heads, 2)
  config.model.summary = base.by_size(config, 8, mini=2)
  return config
