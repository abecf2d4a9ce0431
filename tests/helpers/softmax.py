"""Makes operands of softmax attention, and checks it against float64."""

import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.kernels.softmax import reference
from tests.helpers.gradients import with_gradients
from tools.errors import relative_rms


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
  want = reference.attention(q, k, v, mask, do, scale=scale)
  for name, x, y in zip(('out', 'dq', 'dk', 'dv'), got, want, strict=True):
    assert x.dtype == q.dtype
    assert relative_rms(x, y) < bound, name


def resolve(kernel, dtype=jnp.bfloat16, width=64, **needs):
  return kernels.resolve('softmax', kernel, (2, 8, 2, width), dtype, **needs)
