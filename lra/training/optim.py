"""Schedule, optimizer, weight-decay mask."""

import jax
import jax.numpy as jnp
import numpy as np
import optax


def learning_rate(step, *, base: float, warmup: int):
  """base * min(1, s / warmup) / sqrt(max(s, warmup)), s counted from 1.

  The schedule of Long Range Arena's code, which SimpleTRON keeps (appendix
  A). Counting from 1 makes the first update a real one.

  Args:
    step: updates made so far, 0 at the first one; a number or an array.
    base: the config's learning rate.
    warmup: steps of linear growth; 0 means none.
  """
  xp = jnp if isinstance(step, jax.Array) else np
  s = xp.asarray(step, xp.float32) + 1
  warmup = max(warmup, 1)
  return base * xp.minimum(1.0, s / warmup) / xp.sqrt(xp.maximum(s, warmup))


def decay_mask(params):
  """True for what decays: weight matrices and tables, not biases or norms."""
  def decays(path, p):
    return p.ndim > 1 and 'bias' not in jax.tree_util.keystr(path[-1:])

  return jax.tree_util.tree_map_with_path(decays, params)


def make(train) -> optax.GradientTransformation:
  """AdamW of `config.train`, with decoupled weight decay."""
  schedule = lambda step: learning_rate(
      step, base=train.learning_rate, warmup=train.warmup_steps)
  return optax.adamw(
      schedule, b1=train.b1, b2=train.b2, eps=train.eps,
      weight_decay=train.weight_decay, mask=decay_mask)
