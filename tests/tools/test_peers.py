"""Compares our kernels with those of other libraries, if installed."""

import jax
import numpy as np
import pytest

from lra.kernels import chunks
from tools import errors, peers
from tools.errors import Case


def test_jla_is_asked_for_lightning_attention():
  pytest.importorskip('jla', reason='jax-linear-attention is not installed')
  arrays, named, _ = errors.operands('lightning', Case(150, 4, 16, mask='full'))
  out, pull = jax.vjp(peers.jla_lightning('chunked'), *arrays[:3])
  want = errors.REFERENCES['lightning'](
    *arrays[:3], named['mask'], arrays[3], slopes=chunks.default_slopes(4)
  )
  names = 'out', *errors.GRADIENTS[:3]
  got = [np.asarray(x) for x in (out, *pull(arrays[3]))]
  want = dict(zip(names, want, strict=False))
  assert peers.relative(got, want) < errors.bound('out', 'float32')


@pytest.mark.skipif(jax.default_backend() == 'gpu', reason='they may run')
def test_without_a_gpu_they_are_missing():
  (make,) = peers.jax_peers('lightning').values()
  with pytest.raises(peers.Missing, match='needs an NVIDIA GPU'):
    make()
