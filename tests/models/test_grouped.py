"""Grouped-query and multi-query attention in float64: keys repeated by hand."""

import jax
import jax.numpy as jnp
import pytest

from lra.core.errors import UserError
from lra.models import gqa, transformer
from tests.helpers import mixer_oracle, small


def _oracle(groups, heads):
  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    assert k.shape[2] == v.shape[2] == groups
    own = [h * groups // heads for h in range(heads)]
    o = mixer_oracle.attention(
        xp, q, k[:, :, own], v[:, :, own], mask, q.shape[-1]**-0.5)
    return mixer_oracle.merge(xp, o, params['out'])
  return oracle


@pytest.mark.parametrize('kernel, groups', [
    ('chunked', 2), mixer_oracle.full('chunked', 4),
    mixer_oracle.full('dense', 2)])
def test_gqa_equals_float64(kernel, groups):
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer = gqa.Mixer(
      num_heads=4, qkv_width=12, num_kv_heads=groups, kernel=kernel)
  mixer_oracle.check(mixer, _oracle(groups, 4), x, mask)


def test_mqa_equals_float64():
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer = gqa.MultiQuery(num_heads=3, qkv_width=12)
  mixer_oracle.check(mixer, _oracle(1, 3), x, mask)


@pytest.mark.parametrize('width, heads, groups', [(32, 8, 2), (64, 4, 1)])
def test_number_of_parameters(width, heads, groups):
  x, mask = mixer_oracle.ragged(4, width=width)
  mixer = gqa.Mixer(num_heads=heads, qkv_width=width, num_kv_heads=groups)
  count = sum(p.size for p in jax.tree.leaves(
      mixer_oracle.shapes(mixer, x, mask)))
  assert count == 2 * (width**2 + width) * (1 + groups / heads)


def test_as_many_groups_as_heads_is_the_transformer():
  x, mask = mixer_oracle.ragged(30, 11, width=16)
  ours = gqa.Mixer(num_heads=4, qkv_width=16, num_kv_heads=4)
  theirs = transformer.Mixer(num_heads=4, qkv_width=16)
  variables = mixer_oracle.init(ours, x, mask)
  small.assert_close(
      mixer_oracle.apply(ours, variables, x, mask)[mask],
      mixer_oracle.apply(theirs, variables, x, mask)[mask])


def test_groups_that_do_not_divide_the_heads_are_refused():
  x, mask = mixer_oracle.ragged(4, width=12)
  with pytest.raises(UserError, match='config.model.num_kv_heads=3 does not'):
    mixer_oracle.shapes(
        gqa.Mixer(num_heads=4, qkv_width=12, num_kv_heads=3),
        jnp.asarray(x), mask)
