"""Multi-head latent attention (arXiv 2405.04434): keys from a low-rank latent.

python run_lra.py --config=configs/mla.py:listops_mini

Reaches 53.1 % (floor 22.3 %).

The ranks are in the paper's proportions, 4 and 12 head widths, with half a head
width rotated; but no more than half of the model's width, since LRA's models
have few heads: with 128 of them four head widths are a small part.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'mla'
  width, head = config.encoder.get_ref('width'), base.head_width(config)
  for name, heads in (('kv_rank', 4), ('query_rank', 12)):
    config.model[name] = base.derived(
        lambda D, Dh, heads=heads: max(min(heads * Dh, D // 2), 1), width, head)
  config.model.rotary_width = base.derived(lambda Dh: max(Dh // 4 * 2, 2), head)
  config.model.kernel = 'auto'
  return config
