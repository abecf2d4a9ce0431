"""Multi-head latent attention (arXiv 2405.04434): keys from a low-rank latent.

The ranks are 4 and 12 head widths, as in the paper, but at most D / 2: LRA's
models have few heads. Half a head width is rotated.
"""

from lra.configs import base

get_config = base.of(
    'mla',
    kv_rank=lambda c: _rank(c, 4), query_rank=lambda c: _rank(c, 12),
    rotary_width=lambda c: base.derived(
        lambda Dh: max(Dh // 4 * 2, 2), base.head_width(c)))


def _rank(config, heads):
  return base.derived(
      lambda D, Dh: max(min(heads * Dh, D // 2), 1),
      config.encoder.get_ref('width'), base.head_width(config))
