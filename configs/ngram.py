"""N-gram attention (arXiv 2001.04589): every position sees its last 8.

With N of 4 to 8 the paper's translations lose little (abstract). Sequences are
pooled over their tokens, because the first position of a causal model sees only
itself. A protocol that reads CLS gives it a separate row.
"""

from lra.configs import base

get_config = base.of('ngram', pooling='mean')
