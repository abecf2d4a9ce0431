"""Compares strided sparse attention with dense softmax under explicit masks."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.sparse_transformer import Strided as Mixer
from tests.helpers import mixer_oracle, sparse_oracle


@pytest.mark.parametrize('stride,heads,num_global', [
    mixer_oracle.full(0, 2, 0), mixer_oracle.full(5, 3, 0),
    mixer_oracle.full(1, 2, 0),
    mixer_oracle.full(2**20, 2, 0), (7, 4, 2)])
def test_equals_softmax_under_the_masks(stride, heads, num_global):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  s = stride or 8  # the square root of 61, rounded up
  near = sparse_oracle.matrix(
      61, lambda i, j: abs(i - j) < s or min(i, j) < num_global)
  strided = sparse_oracle.matrix(
      61, lambda i, j: (i - j) % s == 0 or min(i, j) < num_global)
  mixer_oracle.check(
      Mixer(num_heads=heads, qkv_width=12, stride=stride,
            num_global=num_global),
      sparse_oracle.mixer(near, strided), x, mask)


@pytest.mark.parametrize('length,stride', [(1, 1), (2, 2), (64, 8), (65, 9),
                                           (4001, 64)])
def test_automatic_stride_is_the_square_root_rounded_up(length, stride):
  near, strided = Mixer().patterns(length)
  assert near.radius == stride - 1 and strided.dilation == stride
  assert np.ceil(np.sqrt(length)) == stride


def test_longer_padding_with_a_given_stride():
  sparse_oracle.check_longer_padding(
      Mixer(num_heads=2, qkv_width=8, stride=6))


def test_one_head_cannot_be_split():
  x, mask = mixer_oracle.ragged(20, width=12)
  with pytest.raises(UserError, match='num_heads must be 2'):
    mixer_oracle.shapes(Mixer(num_heads=1, qkv_width=8), x, mask)
