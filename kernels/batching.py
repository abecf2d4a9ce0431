"""vmap of a kernel, as a call with a larger batch."""

import jax
from jax.custom_batching import custom_vmap


def over_batch(kernel, function, shared=()):
  """`function` with vmap folded into the leading (batch) dimension.

  Plain XLA is left alone: it has rules of its own for every transformation.
  Every argument and result leaf has the batch in front, except the arguments
  at the positions in `shared`. A vmap over a shared argument runs one call
  after the other.
  """
  if kernel == 'xla':
    return function

  @custom_vmap
  def call(*args):
    return function(*args)

  @call.def_vmap
  def rule(size, batched, *args):
    if any(any(jax.tree.leaves(batched[i])) for i in shared):
      outs = _one_by_one(call, size, batched, args)
    else:
      outs = _folded(call, size, batched, args, shared)
    return outs, jax.tree.map(lambda _: True, outs)

  return call


def _folded(call, size, batched, args, shared):
  def fold(x, is_batched):
    if not is_batched:
      x = jax.numpy.broadcast_to(x[None], (size, *x.shape))
    return x.reshape(size * x.shape[1], *x.shape[2:])

  folded = [
    arg if i in shared else jax.tree.map(fold, arg, batched[i])
    for i, arg in enumerate(args)
  ]
  return jax.tree.map(
    lambda x: x.reshape(size, x.shape[0] // size, *x.shape[1:]), call(*folded)
  )


def _one_by_one(call, size, batched, args):
  def pick(i):
    return jax.tree.map(
      lambda x, b: (
        jax.lax.dynamic_index_in_dim(x, i, keepdims=False) if b else x
      ),
      args,
      tuple(batched),
    )

  return jax.lax.map(lambda i: call(*pick(i)), jax.numpy.arange(size))
