"""reformer on any task: 4 rounds of hashing, chunks of 64.

python run_lra.py --config=configs/reformer.py:text_mini

The paper (Kitaev et al. 2020, arXiv 2001.04451, section 5) trains with up to 8
rounds and takes 2 L / chunk buckets. (Long Range Arena's released code: one
round, ten buckets, chunks of L / 10.)
"""

from configs import base

_LENGTHS = {'listops': 2000, 'listops_mini': 128, 'text_mini': 512,
            'retrieval_rfc_mini': 512}


def get_config(arg='listops'):
  config = base.get_config(arg)
  chunk = 16 if config.task.endswith('_mini') else 64
  length = config.seq_len or _LENGTHS.get(config.task, 4000)
  config.model.name = 'reformer'
  config.model.rounds = 4
  config.model.chunk_size = chunk
  config.model.num_buckets = 2 * -(-length // chunk)
  config.model.qkv_bias = config.protocol != 'lra'
  return config
