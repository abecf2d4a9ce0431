"""Reformer (arXiv 2001.04451): attention within buckets of a hash.

python run_lra.py --config=configs/reformer.py:listops_mini

4 rounds of hashing, chunks of 64 and 2 L / 64 buckets; the paper (section 5)
trains with up to 8 rounds. The Long Range Arena release has one round, ten
buckets and chunks of L / 10. Nystromformer's has two rounds, and so does
`protocol=nystrom`.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'reformer')
  config.model.rounds = base.argument(config, 'hash_rounds')
  config.model.chunk_size = base.by_size(config, 64, mini=16)
  config.model.num_buckets = base.derived(
      lambda L, chunk: 2 * -(-L // chunk), base.length(config),
      config.model.get_ref('chunk_size'))
  return config
