"""Multi-head latent attention (arXiv 2405.04434): keys from a low-rank latent.

python run_lra.py --config=configs/mla.py:listops_mini

As in the paper, the ranks are 4 and 12 head widths, and half a head width is
rotated. But the ranks are at most half of the model's width. LRA's models have
few heads, whereas the paper's 128 heads are far wider than its ranks.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'mla')
  width, head = config.encoder.get_ref('width'), base.head_width(config)
  for name, heads in (('kv_rank', 4), ('query_rank', 12)):
    config.model[name] = base.derived(
        lambda D, Dh, heads=heads: max(min(heads * Dh, D // 2), 1), width, head)
  config.model.rotary_width = base.derived(lambda Dh: max(Dh // 4 * 2, 2), head)
  return config
