"""Matrix products of a program."""

from collections.abc import Iterator

import jax
from jax.extend.core import jaxprs_in_params


def precisions(jaxpr: jax.extend.core.Jaxpr) -> Iterator:
  """The precision of each matrix product, those of kernels included."""
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      yield equation.params['precision']
    for inner in jaxprs_in_params(equation.params):
      yield from precisions(inner)
