"""Tests how many parts the Triton kernels split a sequence into."""

import pytest

pytest.importorskip('jax.experimental.pallas.triton')

from lra.kernels import triton
from lra.kernels.lightning import pallas_triton as lightning
from tests.helpers import cuda


@pytest.mark.parametrize('pairs', (1, 8, 128, 1024))
@pytest.mark.parametrize('length', (1, 32, 33, 500, 4001, 65536))
def test_parts_cover_the_sequence_and_fill_the_device(pairs, length):
  blocks = -(-length // 32)
  for card in cuda.CARDS.values():
    with card.lowering():
      assert triton.cores() == card.cores
      parts, per_part = triton.cut(length, pairs, 32, per_core=2)
    assert (parts - 1) * per_part < blocks <= parts * per_part
    assert parts == 1 or per_part * 32 >= triton.LEAST
    if length // triton.LEAST * pairs >= 2 * card.cores:
      assert parts * pairs >= 1.5 * card.cores


def test_lightning_cuts_only_what_leaves_most_of_the_device_empty():
  """Lightning splits only small batches, because each part costs memory."""
  for batch, cut in ((32, False), (8, True)):
    shape = triton.Shape(batch, 4096, 4, 32, True, 64, 32)
    with cuda.CARDS['h200'].lowering():
      parts, per_part = lightning._parts(shape, 4, 4)
    assert (parts > 1) == cut
    assert (parts - 1) * per_part < 64 <= parts * per_part
