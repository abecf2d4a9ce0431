"""Lightning attention: the public function and its dispatch."""

import functools

import jax
import jax.numpy as jnp

from kernels import checks, chunks, dispatch
from kernels.lightning.options import LightningOptions


def lightning_attention(
  q,
  k,
  v,
  *,
  slopes=None,
  mask=None,
  scale=1.0,
  initial_state=None,
  return_state=False,
  kernel='auto',
):
  """Lightning attention, arXiv 2401.04658 (Qin 2024), equations 3 and 4.

    S_t = exp(-slope) S_{t-1} + k_t^T v_t,   out_t = scale * q_t S_t

  Causal linear attention with one decay per head, in chunks. Masked tokens
  add nothing to the state (which decays over them all the same); their
  outputs and gradients are exactly 0. Slopes 0 are plain causal linear
  attention. A sequence split in two, the second part started from the state
  of the first, gives what the whole gives.

  Args:
    q, k, v: [B, L, H, Dh], float32 or bfloat16, one dtype. Sums are float32;
      float32 products run at the highest precision.
    slopes: [H], finite, >= 0; None = 2**(-8 (h + 1) / H). No gradient.
    mask: bool [B, L], True = token; None = all True. No gradient.
    scale: a Python number.
    initial_state: float32 [B, H, Dh, Dh] (key by value width), None = zeros.
    return_state: also return the state after the last token.
    kernel: 'xla', 'pallas_tpu', 'pallas_gpu', or 'auto' for the device's own
      where it supports the operands, else 'xla'.

  Returns:
    [B, L, H, Dh] in the dtype of q; with return_state a pair of it and the
    state, float32 [B, H, Dh, Dh].

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; says why.
  """
  checks.check_qkv(q, k, v)
  checks.check_mask(mask, q)
  checks.check_state(initial_state, q)
  if slopes is None:
    slopes = chunks.default_slopes(q.shape[2])
  checks.check_slopes(slopes, q.shape[2])
  slopes = jax.lax.stop_gradient(jnp.asarray(slopes, jnp.float32))
  options = LightningOptions(
    scale=checks.check_number('scale', scale),
    return_state=bool(return_state),
    interpret=dispatch.interpret_params(),
  )
  name = dispatch.resolve('lightning', kernel, q.shape, q.dtype)
  out, state = _attend(name, options, q, k, v, mask, slopes, initial_state)
  return (out, state) if return_state else out


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(name, options, *arrays):
  module = dispatch.backend('lightning', name)
  return module.forward(*arrays, options, save=False)[:2]


def _forward(name, options, *arrays):
  module = dispatch.backend('lightning', name)
  out, state, saved = module.forward(*arrays, options, save=True)
  return (out, state), (arrays, saved)


def _backward(name, options, residuals, cotangents):
  arrays, saved = residuals
  module = dispatch.backend('lightning', name)
  dq, dk, dv, dstate = module.backward(*arrays, saved, *cotangents, options)
  return dq, dk, dv, None, None, dstate


_attend.defvjp(_forward, _backward)
