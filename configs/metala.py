"""MetaLA (arXiv 2411.10741): gated linear attention without keys.

The authors' settings for LRA have 4 heads; on ListOps causal, 6 layers of width
32 and `key_width` 16, on Text 4 of width 128.
"""

from lra.configs import base

get_config = base.of('metala')
