"""Compares window and block attention with the package local-attention."""

import pytest

from lra import models
from lra.models import local, ngram, sliding_window
from tests.helpers import mixer_oracle, peer

HEADS = {'num_heads': 2, 'qkv_width': 8}
WINDOW = {'window_size': 5, 'exact_windowsize': True}


@pytest.mark.parametrize('mixer,options', [
    (sliding_window.Mixer(**HEADS, radius=5), WINDOW),
    (models.mixer('sliding_window_mqa')(**HEADS, radius=5), WINDOW),
    (ngram.Mixer(**HEADS, order=6), {**WINDOW, 'causal': True}),
    (local.Mixer(**HEADS, block_size=5),
     {'window_size': 5, 'look_backward': 0, 'look_forward': 0})])
def test_local_attention(check, mixer, options):
  package = peer.load('local_attention', 'local-attention')
  attention = package.LocalAttention(**options)

  def attend(q, k, v, mask):
    k, v = (y.expand(q.shape) for y in (k, v))
    return attention(q, k, v, mask=mask)

  check('local-attention', mixer, peer.around(attend),
        *mixer_oracle.ragged(40, 23, width=12))
