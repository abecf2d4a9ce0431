"""Compares fixed sparse attention with dense softmax under explicit masks."""

import pytest

from lra.core.errors import UserError
from lra.models.sparse_transformer import Fixed as Mixer
from tests.helpers import mixer_oracle, sparse_oracle


@pytest.mark.parametrize('stride,summary,heads,num_global', [
    mixer_oracle.full(0, 2, 2, 0), mixer_oracle.full(7, 3, 3, 0),
    mixer_oracle.full(5, 9, 2, 0), mixer_oracle.full(100, 60, 2, 0),
    (7, 2, 4, 6)])
def test_equals_softmax_under_the_masks(stride, summary, heads, num_global):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  s = stride or 8  # the square root of 61, rounded up
  block = sparse_oracle.matrix(
      61, lambda i, j: i // s == j // s or min(i, j) < num_global)
  columns = sparse_oracle.matrix(
      61, lambda i, j: j % s >= s - summary or min(i, j) < num_global)
  mixer_oracle.check(
      Mixer(num_heads=heads, qkv_width=12, stride=stride, summary=summary,
            num_global=num_global),
      sparse_oracle.mixer(block, columns), x, mask)


def test_longer_padding_with_a_given_stride():
  sparse_oracle.check_longer_padding(
      Mixer(num_heads=2, qkv_width=8, stride=6, summary=2))


@pytest.mark.parametrize('fields', [{'num_heads': 1}, {'summary': 0}])
def test_impossible_sizes_are_refused(fields):
  x, mask = mixer_oracle.ragged(20, width=12)
  with pytest.raises(UserError, match='must be|or more'):
    mixer_oracle.shapes(Mixer(**{'num_heads': 2, 'qkv_width': 8, **fields}),
                        x, mask)
