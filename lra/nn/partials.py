"""Softmax in parts: attend to some of the keys now, to the rest later.

A partial softmax keeps its unnormalised output, its largest logit and its sum
of exponentials. Parts over disjoint sets of keys then merge into the softmax
over their union (Milakov & Gimelshein 2018, arXiv 1805.02867, eq. 4).

Shapes: any leading axes, then Q queries, K keys, Dh key and value width.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lra.nn import arrays

FORBIDDEN = -1e30  # added to a logit, it makes exp() of the logit 0

# With more logits in all heads together, heads run one after another.
MANY_LOGITS = 2**23


class Partial(NamedTuple):
  """Unnormalised softmax over some keys, in float32.

  Attributes:
    out: [..., Q, Dh], sum of exp(logit - max) * value.
    max: [..., Q], largest logit; no gradient flows through it.
    sum: [..., Q], sum of exp(logit - max); 0 if no key is allowed.
  """
  out: jax.Array
  max: jax.Array
  sum: jax.Array


def forbid(allowed: jax.Array) -> jax.Array:
  """Returns a bias of logits, float32: 0 if `allowed`, else `FORBIDDEN`."""
  return jnp.where(allowed, 0.0, FORBIDDEN)


def partial_softmax(q: jax.Array, k: jax.Array, v: jax.Array, *,
                    scale: float | None = None,
                    bias: jax.Array | None = None) -> Partial:
  """Attends with q [..., Q, Dh] to k, v [..., K, Dh], not normalised.

  Logits are scale * q k^T + bias, by default with the scale Dh**-0.5 and
  without a bias. A bias is float32, such as of `forbid`.
  """
  scale = q.shape[-1]**-0.5 if scale is None else scale
  logits = scale * jnp.einsum(
      '...qd,...kd->...qk', q, k, preferred_element_type=jnp.float32)
  if bias is not None:
    logits = logits + arrays.to_rank_of(bias, logits)
  return weigh(logits, v)


def weigh(logits: jax.Array, v: jax.Array) -> Partial:
  """Attends by logits float32 [..., Q, K] to v [..., K, Dh], not normalised."""
  # The merged result does not depend on the maxima, so they are constants to
  # autodiff. The lower bound gives exp() = 0 in rows without an allowed key.
  top = jnp.maximum(jax.lax.stop_gradient(logits.max(-1)), FORBIDDEN / 2)
  weights = jnp.exp(logits - top[..., None])
  out = jnp.einsum('...qk,...kd->...qd', weights.astype(v.dtype), v,
                   preferred_element_type=jnp.float32)
  return Partial(out, top, weights.sum(-1))


def merge(parts: list[Partial]) -> Partial:
  """Merges parts over disjoint keys into the softmax over their union."""
  if len(parts) == 1:
    return parts[0]
  top = functools.reduce(jnp.maximum, [part.max for part in parts])
  decayed = [(part, jnp.exp(part.max - top)) for part in parts]
  return Partial(sum(part.out * decay[..., None] for part, decay in decayed),
                 top, sum(part.sum * decay for part, decay in decayed))


def normalise(part: Partial) -> jax.Array:
  """Returns the output, float32 [..., Q, Dh]; 0 if no key is allowed."""
  return part.out / jnp.where(part.sum > 0, part.sum, 1)[..., None]


def over_heads(attend: Callable, *arrays, num_logits: int):
  """Applies `attend` to each head of `arrays`, pytrees with leading axis H.

  With many logits the heads run one after another and save only their inputs
  for the backward pass; on a CPU that is faster too. The loop is not over
  examples, because the batch may be sharded over devices.
  """
  if num_logits <= MANY_LOGITS:
    return jax.vmap(attend)(*arrays)
  return jax.lax.map(jax.checkpoint(lambda head: attend(*head)), arrays)
