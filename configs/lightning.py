"""Lightning attention (MiniMax-01, arXiv 2501.08313): causal, with decay.

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, the result
gets a separate row and is recorded only with --record.
"""

from lra.configs import base

get_config = base.of('lightning', pooling='mean')
