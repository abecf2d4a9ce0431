"""Compares the gradients of the float64 references with finite differences.

The other tests compare the kernels with these references.
"""

import numpy as np
import pytest

from tests.helpers import reference
from tests.helpers.recurrent import Call, Case

RNG = np.random.default_rng(0)
MASK = RNG.random((2, 6)) < 0.8
CASES = {
  str(x): x for x in (
    *(Case(op, 6, decay=-0.3, channels=True, beta=1.5)
      for op in ('delta', 'general')),
    *(Case('gated', 6, channels=x) for x in (False, True)), Case('scan', 6),
    Case('scan', 9, segments=True))}


def _normal(*shapes):
  return [RNG.standard_normal(x) for x in shapes]


def _attention(name, normalize=False):
  """Returns arrays, and a function of them: (results, gradients)."""
  q, k, v, do = _normal(*[(2, 6, 2, 4)] * 4)
  first, last = _normal(*[(2, 2, 4, 4)] * 2)
  given = {'q': q, 'k': k, 'v': v, 'state': first}
  options = {'slopes': [0.1, 0.7]} if name == 'lightning' else {}
  if normalize:
    given['norm'], last_norm = (np.abs(x) for x in _normal(*[(2, 2, 4)] * 2))
  elif name == 'linear':
    options = {'normalize': False, 'feature_map': 'identity'}

  def run(q, k, v, state, norm=None):
    pairs = state, last
    if name == 'linear':
      pairs = (state, norm if normalize else 0), (
        last, last_norm if normalize else 0)
    out, *grads, final, dstate = getattr(reference, name)(
      q, k, v, MASK, do, initial_state=pairs[0], dfinal=pairs[1], scale=0.7,
      **options)
    values = [(out, do), (final, last)]
    if name == 'linear':
      values = [(out, do), (final[0], last)]
      values += [(final[1], last_norm)] if normalize else []
      grads += dstate if normalize else dstate[:1]
    else:
      grads.append(dstate)
    return values, dict(zip(given, grads, strict=True))

  return given, run


def _softmax():
  q, k, v, do, bias = _normal((2, 5, 2, 4), (2, 6, 2, 4), (2, 6, 2, 3),
                              (2, 5, 2, 3), (2, 10))
  given = {'q': q, 'k': k, 'v': v, 'bias': bias}

  def run(q, k, v, bias):
    out, *grads = reference.softmax(q, k, v, MASK, do, bias=bias)
    return [(out, do)], dict(zip(given, grads, strict=True))

  return given, run


def _norm_project():
  o, weight, bias, dy = _normal((1, 3, 4), (4, 5), (5,), (1, 3, 5))
  given = {'o': o, 'weight': weight, 'bias': bias}

  def run(o, weight, bias):
    y, *grads = reference.norm_project(o, weight, bias, dy)
    return [(y, dy)], dict(zip(given, grads, strict=True))

  return given, run


def _recurrent(case):
  call = Call(case)

  def run(**moving):
    want = call.want(moving)
    cotangents = (np.asarray(x, np.float64) for x in call.cotangents)
    values = [(want.pop(n), x) for n, x in zip(('out', 'last'), cotangents,
                                               strict=True)]
    return values, want

  return call.exact(), run


MADE = {
  'linear': lambda: _attention('linear', True),
  'identity': lambda: _attention('linear'),
  'simpletron': lambda: _attention('simpletron'),
  'lightning': lambda: _attention('lightning'),
  'softmax': _softmax, 'norm_project': _norm_project,
  **{n: lambda case=case: _recurrent(case) for n, case in CASES.items()},
}


@pytest.mark.parametrize('name', MADE)
def test_gradients_are_those_of_finite_differences(name):
  given, run = MADE[name]()

  def loss(given):
    return sum(np.sum(x * y) for x, y in run(**given)[0])

  grads = run(**given)[1]
  assert grads.keys() == given.keys()
  for key, grad in grads.items():
    step = 1e-5 * RNG.standard_normal(grad.shape)
    there, back = (loss(given | {key: given[key] + sign * step})
                   for sign in (1, -1))
    np.testing.assert_allclose((there - back) / 2, np.sum(grad * step),
                               rtol=1e-5, atol=1e-12, err_msg=key)


def test_a_bias_is_of_key_minus_query():
  given, run = _softmax()
  q, k, v, bias = given.values()
  out = run(**given)[0][0][0]
  i = 2
  logits = np.array([4**-0.5 * k[0, j, 1] @ q[0, i, 1] + bias[1, 4 + j - i]
                     for j in range(6)])
  weights = np.exp(logits) * MASK[0]
  np.testing.assert_allclose(out[0, i, 1], weights / weights.sum() @ v[0, :, 1],
                             rtol=1e-9)
