"""Real and complex numbers in Pallas kernels, which know real arrays only.

In a kernel a real number is a tuple of one array, a complex number a tuple of
two arrays, real and imaginary part.
"""

import jax
import jax.numpy as jnp


def wide(dtype):
  """Returns the dtype of the states of arrays: float32 or complex64."""
  return jnp.dtype(jnp.complex64 if jnp.issubdtype(dtype, jnp.complexfloating)
                   else jnp.float32)


def split(z):
  return (z.real, z.imag) if jnp.iscomplexobj(z) else (z,)


def join(parts):
  return parts[0] if len(parts) == 1 else jax.lax.complex(*parts)


def named(name, z):
  """Returns name -> array for the parts of z, or name -> None without one."""
  if z is None:
    return {name: None}
  return {f'{name}{i}': part for i, part in enumerate(split(z))}


def times(p, q):
  if len(p) == 1:
    return (p[0] * q[0],)
  return p[0] * q[0] - p[1] * q[1], p[0] * q[1] + p[1] * q[0]


def plus(p, q):
  return tuple(x + y for x, y in zip(p, q, strict=True))


def each(function, *numbers):
  """Applies a linear function to the real, then to the imaginary parts."""
  return tuple(function(*parts) for parts in zip(*numbers, strict=True))


def where(condition, p, real):
  """Returns p if `condition` holds, else the real number `real`."""
  others = (real,) + (0.0,) * (len(p) - 1)
  return tuple(jnp.where(condition, x, other)
               for x, other in zip(p, others, strict=True))
