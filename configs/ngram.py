"""N-gram attention (arXiv 2001.04589): every position sees its last 8.

python run_lra.py --config=configs/ngram.py:listops_mini

With N of 4 to 8 the paper's translations lose little (abstract). The first
position of a causal model sees only itself, so sequences are pooled over their
tokens and not read from CLS. If the protocol reads CLS, this changes the
protocol: the result gets a separate row and is recorded only with --record.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'ngram')
  config.encoder.pooling = 'mean'
  return config
