"""Gated linear attention in plain XLA: chunks, no loop over tokens.

`scalar` and `channels` have the formulas of a chunk, for the two kinds of
gates. The forward pass saves the states before segments, and the backward pass
recomputes the rest. The gradient of a log decay is a sum over its chunk, plus
the product of the state behind the chunk with the gradient of this state. A sum
over the whole sequence would lose precision.
"""

import functools

import jax.numpy as jnp
from jax import lax

from lra.kernels import axes, xla
from lra.kernels.gated import channels, scalar

CHUNKS = 16  # chunks in a segment


def forward(inputs, options, save):
  q, k, v, g, state = inputs
  form, plan = _plan(q, g)
  if state is None:
    state = axes.zeros(
        (q.shape[0], v.shape[2], q.shape[3], v.shape[3]), jnp.float32, q)
  arrays = plan.pad(q, k, v, g)

  def body(carry, n):
    state, out = carry
    q, k, v, g = _read(plan, arrays, n)
    decay = form.decays(g)
    before, after = _states(state, form.into_state(k, v, decay), decay.total)
    part = options.scale * form.outputs(q, k, v, decay, before)
    return (after, *_write(plan, [out], n, [part])), state

  carry = state, axes.zeros(arrays[2].shape, v.dtype, v)
  (state, out), before = lax.scan(body, carry, jnp.arange(plan.count))
  return (out[:, :v.shape[1]], state), before if save else None


def backward(inputs, saved, cotangents, options):
  (do, dstate), (q, k, v, g, first) = cotangents, inputs
  form, plan = _plan(q, g)
  *arrays, do = plan.pad(q, k, v, g, do)

  def body(carry, x):
    dstate, *grads = carry
    n, state = x
    q, k, v, g = _read(plan, arrays, n)
    do_n = (options.scale * _read(plan, [do], n)[0]).astype(do.dtype)
    decay = form.decays(g)
    before, _ = _states(state, form.into_state(k, v, decay), decay.total)
    flip = functools.partial(jnp.flip, axis=1)
    dafter, dstate = _states(
        dstate, flip(form.into_gradient(q, do_n, decay)), flip(decay.total))
    parts = form.gradients(q, k, v, decay, before, flip(dafter), do_n)
    return (dstate, *_write(plan, grads, n, parts)), None

  carry = dstate, *(axes.zeros(x.shape, x.dtype, x) for x in arrays)
  (dstate, *grads), _ = lax.scan(
      body, carry, (jnp.arange(plan.count), saved), reverse=True)
  grads = (x[:, :q.shape[1]] for x in grads)
  return type(inputs)(*grads, None if first is None else dstate)


def _plan(q, g):
  """Returns the module with the formulas, and `xla.Segments`."""
  form, length = scalar if g.ndim == 3 else channels, q.shape[1]
  chunk = min(form.chunk(), 1 << (length - 1).bit_length())
  return form, xla.Segments.of(length, chunk, chunk * CHUNKS)


def _read(plan, arrays, n):
  """Returns the chunks of segment n: [B, L, H, ...] -> [B, N, H, C, ...]."""
  return [jnp.moveaxis(x.reshape(len(x), -1, plan.chunk, *x.shape[2:]), 3, 2)
          for x in plan.read(arrays, n)]


def _write(plan, arrays, n, parts):
  return plan.write(arrays, n, [
      jnp.moveaxis(p, 2, 3).astype(x.dtype).reshape(
          len(x), plan.size, *x.shape[2:])
      for x, p in zip(arrays, parts, strict=True)])


def _states(state, added_BxNxHxDxE, total_BxNxHxM):
  """Returns the states before all chunks, [B, N, H, D, E], and the last one.

    S_(n + 1) = exp(total_n) S_n + added_n,  total [B, N, H, 1 or D]
  """
  first = jnp.concatenate([state[:, None], added_BxNxHxDxE[:, :-1]], axis=1)
  # exp(-104) is 0 in float32. Sums of lower log decays would be less exact.
  total = jnp.maximum(total_BxNxHxM, scalar.LEAST)
  until = jnp.cumsum(total, 1) - total
  n = jnp.arange(total.shape[1])
  gap_BxNxNxHxM = jnp.where(
      (n[:, None] >= n[None])[None, :, :, None, None],
      until[:, :, None] - until[:, None], -jnp.inf)
  weight = jnp.exp(gap_BxNxNxHxM)
  spec = 'bnmhd,bmhde->bnhde'
  if weight.shape[-1] == 1:
    weight, spec = weight[..., 0], 'bnmh,bmhde->bnhde'
  before = jnp.einsum(spec, weight, first, precision=lax.Precision.HIGHEST)
  last = jnp.exp(total[:, -1])[..., None] * before[:, -1]
  return before, last + added_BxNxHxDxE[:, -1]
