"""Makes learning rate schedules, optimizers and parameter groups.

They are built from optax. Long Range Arena's schedule, which optax lacks, is
defined here.
"""

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
  (appendix A). `step`, a number or an array, has 0 at the first update, whose
  rate is not zero.
  """
  xp = jnp if isinstance(step, jax.Array) else np
  s = xp.asarray(step, xp.float32) + 1
  warmup = max(warmup, 1)
  return base * xp.minimum(1.0, s / warmup) / xp.sqrt(xp.maximum(s, warmup))


def schedule(config, base: float | None = None) -> Callable:
  """Returns `config.optim.schedule`: updates made -> learning rate.

  All schedules grow linearly over `config.train.warmup_steps` steps; the last
  of these has the peak: learning_rate / sqrt(warmup_steps) for `rsqrt`, else
  `base`, by default the config's learning rate. Then `rsqrt` falls with the
  root of the step, `constant` stays, and `cosine` and `linear` fall to
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

  In a few mixers, parameters with one row per head decay too: scales of a norm
  (lightning), widths and means of a kernel (rfa, gmm_rks), gates (duo), and
  biases with other names (synthesizer). `config.optim.groups` can exempt them.
  """
  def decays(path, p):
    return p.ndim > 1 and 'bias' not in jax.tree_util.keystr(path[-1:])

  return jax.tree_util.tree_map_with_path(decays, params)


def named(tree) -> dict[str, Any]:
  """Returns {name: leaf} of a tree, with the names of `path_name`."""
  return {path_name(path): leaf
          for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def path_name(path) -> str:
  """Returns a parameter's name (`encoder/block_0/mixer/query/kernel`)."""
  return '/'.join(str(key.key) for key in path)


def first_matches(patterns, names) -> list[int | None]:
  """Returns the index of the first pattern that matches each whole name."""
  return [next((i for i, pattern in enumerate(patterns)
                if re.fullmatch(pattern, name)), None) for name in names]


def groups_of(config) -> tuple:
  """Returns the group of SSM parameters, if any, and `config.optim.groups`.

  The SSM group exists if `config.train` has a learning rate or a weight decay
  for it, and the mixer has such parameters. It comes first: the first group
  that matches a parameter counts.
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

  Without groups, one group has all parameters. Compiled steps take them as
  arguments, so they may vary over a grid without another compilation.
  """
  groups = groups_of(config) or (('.*', {}),)
  return {name: np.array([(options or {}).get(name, config.train[name])
                          for _, options in groups], np.float32)
          for name in ('learning_rate', 'weight_decay')}


def make(config, given=None) -> optax.GradientTransformation:
  """Makes the optimizer: clipping, groups, update rule, weight decay.

  Its `update` takes the gradient and, to clip it, its `norm`, both from
  `gradient_norm`; its `init` raises UserError as `labels`. `given`, which may
  be traced, replaces `numbers(config)`.
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
  """Returns the gradient and its global L2 norm, float32 [].

  Frozen parameters do not count in the norm, so XLA need not compute their
  gradients.

  On a single GPU, the returned gradients lie in one array. Then one kernel
  computes the norm, and one updates all parameters of one shape, after the last
  gradient. Otherwise XLA would launch a kernel for each parameter, and copy the
  parameters that the backward pass still reads. With several devices, the array
  would have to be gathered.
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
  """Returns the L2 norm of all entries of a tree, float32 []."""
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
  """Returns the update rule of one group."""
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
  """Returns a tree like `params` with the index of each parameter's group.

  The first group whose regular expression matches the whole name counts.
  """
  names = list(named(params))
  numbers = first_matches([pattern for pattern, _ in groups], names)
  if None in numbers:
    raise UserError(
        f'config.optim.groups has no group for the parameter '
        f'{names[numbers.index(None)]}: add a last '
        "group ('.*', {}) for the rest, or ('.*', None) to freeze it.")
  tree = jax.tree.unflatten(jax.tree.structure(params), numbers)
  unused = set(range(len(groups))) - set(jax.tree.leaves(tree))
  if unused:
    raise UserError(
        f'config.optim.groups: no parameter is named like '
        f'{groups[min(unused)][0]!r}, or earlier groups have them all: '
        'correct it; names are like encoder/block_0/mixer/query/kernel.')
  if all(own is None for _, own in groups):
    raise UserError(
        'config.optim.groups freezes every parameter: leave one to be trained, '
        "as by a last group ('.*', {}).")
  return tree


def _grouped(groups, rules):
  """Updates each group by its rule, except frozen groups."""
  by_number = {number: optax.set_to_zero() if options is None
               else rules[number]
               for number, (_, options) in enumerate(groups)}
  return optax.partition(by_number, lambda params: labels(params, groups))
