"""Makes learning rate schedules, optimizers and parameter groups, of optax."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from lra import kernels, models
from lra.core.errors import UserError


def rsqrt(step, *, base: float, warmup: int):
  """Returns base * min(1, s / warmup) / sqrt(max(s, warmup)), s = step + 1.

  This is the schedule of Long Range Arena's code, which SimpleTRON keeps
  (appendix A). `step`, a number or an array, has 0 at the first update.
  """
  xp = jnp if isinstance(step, jax.Array) else np
  s = xp.asarray(step, xp.float32) + 1
  warmup = max(warmup, 1)
  return base * xp.minimum(1.0, s / warmup) / xp.sqrt(xp.maximum(s, warmup))


def schedule(config, base: float | None = None) -> Callable:
  """Returns `config.optim.schedule`: updates made -> learning rate.

  All schedules grow linearly over `config.train.warmup_steps` steps, up to
  `base` (for `rsqrt` divided by the root of these steps). Then `rsqrt` falls
  with the root of the step, `constant` stays, and `cosine` and `linear` fall to
  `final_fraction` of the peak at the last step.
  """
  train, name = config.train, config.optim.schedule
  base = train.learning_rate if base is None else base
  warmup = train.warmup_steps
  if name == 'rsqrt':
    return lambda step: rsqrt(step, base=base, warmup=warmup)
  rest = max(train.steps - warmup, 1)
  final = config.optim.final_fraction
  after = {
      'constant': lambda: optax.constant_schedule(base),
      'cosine': lambda: optax.cosine_decay_schedule(base, rest, alpha=final),
      'linear': lambda: optax.linear_schedule(base, base * final, rest),
  }[name]()
  if not warmup:
    return lambda step: after(step + 1)
  whole = optax.join_schedules(
      [optax.linear_schedule(0.0, base, warmup), after], [warmup])
  return lambda step: whole(step + 1)


def decay_mask(params):
  """Returns True for parameters that decay: two axes or more, no bias.

  In a few mixers, parameters with one row per head decay too, such as scales of
  a norm (lightning) and gates (duo). `config.optim.groups` can exempt them.
  """
  def decays(path, p):
    return p.ndim > 1 and 'bias' not in jax.tree_util.keystr(path[-1:])

  return jax.tree_util.tree_map_with_path(decays, params)


def named(tree) -> dict[str, Any]:
  return {path_name(path): leaf
          for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def path_name(path) -> str:
  return '/'.join(str(key.key) for key in path)


def first_matches(rules, names, field: str, rest: str) -> list[int]:
  """Returns the number of the first rule (pattern, ...) that matches each name.

  Patterns match whole names. Each name needs a rule, and each rule a name.
  `rest` is a rule for all names, and `field` the config's, for the errors.
  """
  numbers = [next((i for i, (pattern, _) in enumerate(rules)
                   if re.fullmatch(pattern, name)), None) for name in names]
  if None in numbers:
    raise UserError(
        f'{field} has nothing for {list(names)[numbers.index(None)]}: add '
        f'a last pair for the rest, such as {rest}.')
  for i, (pattern, _) in enumerate(rules):
    if i not in numbers:
      raise UserError(
          f'{field}: no array is named like {pattern!r}, or earlier pairs have '
          'them all: correct it; names are like '
          'encoder/block_0/mixer/query/kernel.')
  return numbers


def groups_of(config) -> tuple:
  """Returns the group of SSM parameters, if any, and `config.optim.groups`.

  The SSM group exists if `config.train` has a learning rate or a weight decay
  for it, and the mixer has such parameters. It comes first.
  """
  train, groups = config.train, config.optim.groups
  own = {name: train[f'ssm_{name}'] for name in (
      'learning_rate', 'weight_decay') if train[f'ssm_{name}'] >= 0}
  names = getattr(models.module(config.model.name), 'PARAM_GROUPS', ())
  if train.ssm_parameters:
    names = [name for name in names if name in train.ssm_parameters]
  if not (own and names):
    return groups
  pattern = f'.*/mixer/({"|".join(map(re.escape, names))})'
  return ((pattern, own), *(groups or (('.*', {}),)))


def numbers(config) -> dict[str, np.ndarray]:
  """Returns `learning_rate` and `weight_decay`, float32 [G], of `groups_of`.

  Compiled steps take them as arguments, so they may vary without compilation.
  """
  groups = groups_of(config) or (('.*', {}),)
  return {name: np.array([(options or {}).get(name, config.train[name])
                          for _, options in groups], np.float32)
          for name in ('learning_rate', 'weight_decay')}


def make(config, given=None) -> optax.GradientTransformation:
  """Makes the optimizer: clipping, groups, update rule, weight decay.

  Its `update` takes the gradient and its `norm`, both from `gradient_norm`.
  `given`, which may be traced, replaces `numbers(config)`.
  """
  optim, given = config.optim, given or numbers(config)
  groups = groups_of(config)
  rules = [_rule(config, *values) for values in zip(
      given['learning_rate'], given['weight_decay'], strict=True)]
  parts = []
  if optim.clip_norm:
    parts.append(_clipped(optim.clip_norm))
  parts.append(_grouped(groups, rules) if groups else rules[0])
  rule = optax.with_extra_args_support(
      optax.chain(*parts) if len(parts) > 1 else parts[0])

  def update(grads, state, params=None, **extra):
    with jax.numpy_dtype_promotion('standard'):  # Optax relies on it
      return rule.update(grads, state, params, **extra)

  return optax.GradientTransformationExtraArgs(rule.init, update)


def gradient_norm(config, grads) -> tuple[Any, jax.Array]:
  """Returns the gradient and its L2 norm, float32 [], without frozen ones.

  On a single GPU, the returned gradients lie in one array. Then one kernel
  computes the norm, and one updates all parameters of one shape. Otherwise XLA
  would launch a kernel for each parameter, and copy the parameters that the
  backward pass still reads.
  """
  groups = groups_of(config)
  mesh = jax.sharding.get_abstract_mesh()
  if kernels.platform() == 'gpu' and (mesh.empty or mesh.size == 1):
    flat, restore = jax.flatten_util.ravel_pytree(grads)
    flat = jax.lax.optimization_barrier(flat)
    grads = restore(flat)
    if not (groups or config.optim.clip_norm):
      return grads, jnp.sqrt(jnp.sum(jnp.square(flat)))
  trained = jax.tree.leaves(grads)
  if groups:
    group_of = jax.tree.leaves(labels(grads, groups))
    trained = [gradient for gradient, group in zip(
        trained, group_of, strict=True) if groups[group][1] is not None]
  return grads, global_norm(trained)


def global_norm(tree) -> jax.Array:
  return jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)))


def _clipped(most):
  """Returns `optax.clip_by_global_norm` for a norm that was computed before."""
  def update(grads, state, params=None, *, norm, **extra):
    del params, extra
    return jax.tree.map(lambda g: jnp.where(
        norm < most, g, g / norm * most), grads), state

  return optax.GradientTransformationExtraArgs(
      lambda params: optax.EmptyState(), update)


def _rule(config, learning_rate, decay):
  train, optim = config.train, config.optim
  rate = schedule(config, learning_rate)
  # L2: the decay is added to the gradient, as in torch.optim.Adam and SGD.
  coupled = lambda rule: optax.chain(
      optax.add_decayed_weights(decay, mask=decay_mask), rule)
  return {
      'adamw': lambda: optax.adamw(
          rate, b1=train.b1, b2=train.b2, eps=train.eps, weight_decay=decay,
          mask=decay_mask),
      'adam': lambda: coupled(optax.adam(
          rate, b1=train.b1, b2=train.b2, eps=train.eps)),
      'sgd': lambda: coupled(optax.sgd(
          rate, momentum=optim.momentum or None)),
      'lion': lambda: optax.lion(
          rate, b1=train.b1, b2=train.b2, weight_decay=decay,
          mask=decay_mask),
      # Learning rate -1 makes muon return the bare direction. Weight decay is
      # added here: muon's own has no mask for the parameters it leaves to Adam.
      'muon': lambda: optax.chain(
          contrib.muon(-1.0, beta=optim.momentum, eps=train.eps,
                       adam_b1=train.b1, adam_b2=train.b2),
          optax.add_decayed_weights(decay, mask=decay_mask),
          optax.scale_by_learning_rate(rate)),
  }[optim.name]()


def labels(params, groups):
  """Returns a tree like `params` with the number of each parameter's group."""
  if all(own is None for _, own in groups):
    raise UserError(
        'config.optim.groups freezes every parameter: leave one to be trained, '
        "as by a last group ('.*', {}).")
  return jax.tree.unflatten(jax.tree.structure(params), first_matches(
      groups, named(params), 'config.optim.groups',
      "('.*', {}), or ('.*', None) to freeze it"))


def _grouped(groups, rules):
  by_number = {number: optax.set_to_zero() if options is None
               else rules[number]
               for number, (_, options) in enumerate(groups)}
  return optax.partition(by_number, lambda params: labels(params, groups))
