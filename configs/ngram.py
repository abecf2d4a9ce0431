"""N-gram attention (arXiv 2001.04589): every position sees its last 8.

With N of 4 to 8 the paper's translations lose little (abstract). The first
position of a causal model sees only itself, so sequences are pooled over their
tokens and not read from CLS. If the protocol reads CLS, the result gets a
separate row and is recorded only with --record.
"""

from lra.configs import base

get_config = base.of('ngram', pooling='mean')
