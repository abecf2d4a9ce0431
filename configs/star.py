"""Star Attention (arXiv 2411.17116): each block also sees the first block.

The paper's sequences and blocks are far longer.
"""

from lra.configs import base

get_config = base.of('star', block_size=lambda c: base.by_size(
    c, base.derived(lambda L: max(min(512, L // 4), 1), base.length(c)),
    mini=32))
