"""Lightning attention (MiniMax-01, arXiv 2501.08313): causal, with decay.

Sequences are pooled over their tokens, because the first position of a causal
model sees only itself. A protocol that reads CLS gives it a separate row.
"""

from lra.configs import base

get_config = base.of('lightning', pooling='mean')
