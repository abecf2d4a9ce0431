"""Compares matmuls in any order of axes with numpy in float64."""

import itertools

import jax
import numpy as np
import pytest

from lra.kernels import xla

SIZES = {'x': 3, 'i': 4, 'd': 5, 'e': 6}


@pytest.mark.parametrize('longest', [5, xla.MOST_ROWS + 1])
def test_einsum_and_its_gradients_in_any_order(longest):
  sizes = SIZES | {'d': longest}
  rng = np.random.default_rng(0)
  draw = lambda axes: rng.standard_normal([sizes[i] for i in axes])
  orders = lambda axes: map(''.join, itertools.permutations(axes))
  for left, out in itertools.product(orders('xid'), orders('xie')):
    for right in ('xde', 'exd'):
      spec = f'{left},{right}->{out}'
      a, b, ct = draw(left), draw(right), draw(out)
      got, pull = jax.vjp(lambda a, b, spec=spec: xla.einsum(spec, a, b),
                          *(x.astype(np.float32) for x in (a, b)))
      da, db = pull(ct.astype(np.float32))
      for name, x, terms in (('out', got, (spec, a, b)),
                             ('da', da, (f'{out},{right}->{left}', ct, b)),
                             ('db', db, (f'{left},{out}->{right}', a, ct))):
        expected = np.einsum(*terms)
        error = np.abs(x - expected).max() / np.abs(expected).max()
        assert error < 1e-5, (spec, name)
