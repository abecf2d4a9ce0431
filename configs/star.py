"""Star Attention (arXiv 2411.17116): each block also sees the first block.

python run_lra.py --config=configs/star.py:listops_mini

Blocks of a quarter of the sequence, as in the paper, but at most 512 tokens:
the paper's sequences and blocks are far longer. The query token is CLS, or the
first token without CLS.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'star')
  config.model.block_size = base.by_size(
      config, base.derived(lambda L: max(min(512, L // 4), 1),
                           base.length(config)), mini=32)
  return config
