"""Lists the precision of the matrix products of a program."""

from collections.abc import Iterator

import jax
from jax.extend.core import jaxprs_in_params


def at_the_highest(jaxpr: jax.extend.core.Jaxpr
                   ) -> Iterator[tuple[bool, bool]]:
  """Yields two bools for each matrix product, also for those in kernels.

  They are whether both operands are float32, and whether the precision is
  highest.
  """
  highest = jax.lax.Precision.HIGHEST
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      precision = equation.params['precision']
      yield ({x.aval.dtype.name for x in equation.invars} == {'float32'},
             bool(precision) and set(precision) == {highest})
    for inner in jaxprs_in_params(equation.params):
      yield from at_the_highest(inner)
