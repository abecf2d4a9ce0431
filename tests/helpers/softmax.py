"""Makes operands of softmax attention, and checks it against float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels.softmax import chunked, dense
from lra.kernels.softmax.api import Inputs, Options
from tests.helpers import reference
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_gradients


def inputs(length, keys, width=8, value_width=8, seed=0):
  rng = np.random.default_rng(seed)
  return [
    rng.normal(size=(3, n, 2, d)).astype(np.float32)
    for n, d in ((length, width), (keys, width), (keys, value_width))
  ]


def up_to(keys, *lengths):
  return np.arange(keys) < np.array(lengths)[:, None]


def check(attend, q, k, v, mask, scale, bound=1e-5):
  rng = np.random.default_rng(1)
  do = rng.normal(size=(*q.shape[:3], v.shape[-1])).astype(v.dtype)
  got = with_gradients(attend)(do, q, k, v)
  want = reference.softmax(q, k, v, mask, do, scale=scale)
  for name, x, y in zip(('out', 'dq', 'dk', 'dv'), got, want, strict=True):
    assert x.dtype == q.dtype
    assert relative_rms(x, y) < bound, name


def resolve(kernel, dtype=jnp.bfloat16, width=64, **needs):
  return kernels.resolve('softmax', kernel, (2, 8, 2, width), dtype, **needs)


def attend_dense(q, k, v, mask=None, *, scale, **options):
  """Computes the kernel 'dense'; arguments are those of its public function."""
  return _run(dense, q, k, v, mask, scale, **options)


def in_blocks(block, platform='cpu', limit=2**20):
  """Returns the kernel 'chunked' with tiles of at most `block` rows.

  On a GPU they may have more, up to `limit` bytes. A group of examples has one
  example, or a tile within the limit.
  """
  def attend(q, k, v, mask=None, *, scale, **options):
    with pytest.MonkeyPatch.context() as patch, kernels.target(platform):
      patch.setattr(chunked, 'BLOCK', block)
      for name in ('CACHED', 'LARGE'):
        patch.setattr(chunked, name, limit)
      return _run(chunked, q, k, v, mask, scale, **options)

  return attend


def _run(module, q, k, v, mask, scale, bias=None, dropout_rate=0.0,
         dropout_key=None):
  mask = None if mask is None else jnp.asarray(mask)
  inputs = Inputs(q, k, v, mask, bias, dropout_key)
  return module.forward(inputs, Options(scale, dropout_rate), False)[0]
