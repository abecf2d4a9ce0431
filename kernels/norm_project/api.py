"""RMS norm and projection in one: the public function."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import call, checks, dispatch


class Options(NamedTuple):
  eps: float
  interpret: Any = None


class Inputs(NamedTuple):
  """Arrays of `norm_project`, with o as [N, E]."""
  o: jax.Array
  weight: jax.Array
  bias: jax.Array


def norm_project(o, *, weight, bias, eps=1e-6, kernel='auto'):
  """Applies an RMS norm (arXiv 1910.07467, equation 4) and a projection.

    y_i = r_i (o_i W) + b,  r_i = (mean_e o_ie^2 + eps)^(-1/2)

  The caller multiplies the norm's own scale into the rows of W. No normalised
  copy of o is written. Errors are those of `linear_attention`.

  Args:
    o: [B, L, E], float32 or bfloat16. Means and sums are float32.
    weight: W, float32 [E, D]; multiplied in the dtype of o.
    bias: b, float32 [D].
    eps: a Python number.
    kernel: one of `kernels.OPS['norm_project']`, or 'auto'. float32 matmuls of
      'xla' have JAX's default precision.

  Returns:
    y, [B, L, D] in the dtype of o.
  """
  checks.check_tokens('o', o)
  width = jnp.shape(weight)[-1:]
  checks.check_float32('weight', weight, (o.shape[-1], *width), '[E, D]')
  checks.check_float32('bias', bias, width, '[D]')
  options = Options(checks.check_number('eps', eps),
                    dispatch.interpret_params())
  name = dispatch.resolve('norm_project', kernel, o.shape, o.dtype)
  inputs = Inputs(o.reshape(-1, o.shape[-1]), weight, bias)
  y_NxD = call.run('norm_project', name, options, inputs)
  return y_NxD.reshape(*o.shape[:2], -1)
