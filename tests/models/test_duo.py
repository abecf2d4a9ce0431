"""Compares DuoAttention with its two softmaxes, written out."""

import numpy as np
import pytest

from lra.models import attention_sink, transformer
from lra.models.duo import Mixer
from tests.helpers import mixer_oracle, small, sparse_oracle


def _oracle(radius, sinks):
  seen = sparse_oracle.matrix(
      61, lambda i, j: abs(i - j) <= radius or j < sinks)

  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    keep = mask[:, None, None, :]
    full = sparse_oracle.attend(xp, q, k, v, keep)
    near = sparse_oracle.attend(xp, q, k, v, seen & keep)
    alpha = 1 / (1 + xp.exp(-params['gate']))
    return mixer_oracle.merge(
        xp, alpha * full + (1 - alpha) * near, params['out'])

  return oracle


@pytest.mark.parametrize('radius,sinks', [
    (5, 4), mixer_oracle.full(0, 0)])
def test_equals_the_two_softmaxes(radius, sinks):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = Mixer(num_heads=2, qkv_width=8, radius=radius, num_sinks=sinks)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['gate'] = np.float32([[1.5], [-0.7]])
  mixer_oracle.check(mixer, _oracle(radius, sinks), x, mask,
                     variables=variables)


@pytest.mark.parametrize('gate,other', [
    (40, transformer.Mixer(num_heads=2, qkv_width=8)),
    (-40, attention_sink.Mixer(num_heads=2, qkv_width=8, radius=5))])
def test_the_ends_of_the_gate(gate, other):
  x, mask = mixer_oracle.ragged(40, 23, width=12)
  mixer = Mixer(num_heads=2, qkv_width=8, radius=5)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['gate'] = np.full((2, 1), gate, np.float32)
  want = mixer_oracle.apply(other, {'params': {
      k: v for k, v in variables['params'].items() if k != 'gate'}}, x, mask)
  got = mixer_oracle.apply(mixer, variables, x, mask)
  small.assert_close(got[mask], want[mask])
