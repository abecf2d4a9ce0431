"""A config against `lra.fields`, before any work is done with it."""

import math
import re

from lra import identity, tasks
from lra.errors import UserError
from lra.fields import FIELDS, Field

# What a group of `config.optim.groups` may have of its own.
GROUP_FIELDS = ('learning_rate', 'weight_decay')

_KINDS = {bool: 'True or False', str: 'text', tuple: 'a tuple',
          int: 'a whole number', float: 'a finite number'}


def check(config, num_devices: int) -> None:
  """Checks every field, and which of them must fit together.

  Args:
    config: a whole config, references resolved or not.
    num_devices: that share a microbatch.

  Raises:
    UserError: one sentence that names the field and what it may be.
  """
  flat = identity.flatten(config.to_dict())
  for name, value in flat.items():
    if name in FIELDS:
      _check_field(name, value, FIELDS[name])
    elif not name.startswith('model.'):
      raise UserError(
          f'config.{name} is unknown: declare it in lra/fields.py.')
  for name in FIELDS:
    if name not in flat and not name.startswith('model.'):
      raise UserError(
          f'config.{name} is missing: begin with configs/base.py, get_config.')
  _check_task(config)
  _check_train(config.train, num_devices)
  _check_optim(config.optim)
  _check_model(config)


def check_choice(field: str, value, choices) -> None:
  """Raises a UserError naming `field` unless `value` is one of `choices`."""
  if value not in choices:
    raise UserError(
        f'{field}={value!r} is not possible: choose one of '
        f'{", ".join(choices)}.')


def _check_field(name: str, value, field: Field):
  if field.choices:
    return check_choice(f'config.{name}', value, field.choices)
  limits = _limits(field)
  if not _is(value, field.type) or not _inside(value, field):
    raise UserError(
        f'config.{name}={value} is not possible: it must be '
        f'{_KINDS[field.type]}{limits and " " + limits}.')


def _is(value, kind):
  if kind is float:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and math.isfinite(value))
  if kind is tuple:  # which JSON calls a list
    return isinstance(value, (tuple, list))
  return type(value) is kind


def _inside(value, field):
  return not (
      field.low is not None and value < field.low or
      field.high is not None and value > field.high or
      field.above is not None and value <= field.above or
      field.below is not None and value >= field.below)


def _limits(field):
  """The range of a field in words, '' where it has none."""
  words = {'of at least': field.low, 'of at most': field.high,
           'above': field.above, 'below': field.below}
  return ' and '.join(
      f'{word} {limit}' for word, limit in words.items() if limit is not None)


def _check_task(config):
  task, L = tasks.get(config.task), config.seq_len
  if L > task.seq_len:
    raise UserError(
        f'config.seq_len={L} is not possible: {task.name} has sequences of '
        f'{task.seq_len} tokens; choose 1 to {task.seq_len}, or 0 for all.')


def _check_train(train, num_devices):
  if train.include_val and train.select == 'best':
    raise UserError(
        'config.train.include_val leaves nothing to choose the best '
        'checkpoint by: set config.train.select=last.')
  if train.batch_size % train.microbatch_size:
    raise UserError(
        f'config.train.microbatch_size={train.microbatch_size} does not '
        f'divide config.train.batch_size={train.batch_size}: choose a '
        'divisor.')
  for name in ('microbatch_size', 'eval_batch_size'):
    if train[name] % num_devices:
      raise UserError(
          f'config.train.{name}={train[name]} cannot be split over '
          f'{num_devices} devices: choose a multiple of {num_devices}.')


def _check_optim(optim):
  if optim.final_fraction and optim.schedule not in ('cosine', 'linear'):
    raise UserError(
        f'config.optim.final_fraction={optim.final_fraction} means nothing to '
        f'the schedule {optim.schedule}: set it to 0.')
  if optim.momentum != FIELDS['optim.momentum'].default and (
      optim.name not in ('sgd', 'muon')):
    raise UserError(
        f'config.optim.momentum={optim.momentum} means nothing to the '
        f'optimizer {optim.name}: leave it out, or choose sgd or muon.')
  for group in optim.groups:
    problem = _group_problem(group)
    if problem:
      raise UserError(
          f'config.optim.groups has the group {group!r}, {problem}: give pairs '
          'of a regular expression and dict(learning_rate=..., '
          'weight_decay=...), or None for frozen.')


def _group_problem(group):
  """What is wrong with a group of parameters, '' if nothing."""
  if not (isinstance(group, (tuple, list)) and len(group) == 2
          and isinstance(group[0], str)):
    return 'which is no such pair'
  pattern, own = group
  try:
    re.compile(pattern)
  except re.error as e:
    return f'whose expression cannot be read ({e})'
  if own is None:
    return ''
  if not hasattr(own, 'items'):
    return 'whose second part is neither a dict nor None'
  for name, value in own.items():
    if name not in GROUP_FIELDS:
      return f'with {name!r}, which is none of {" and ".join(GROUP_FIELDS)}'
    if not _is(value, float) or value < 0:
      return f'whose {name} is not a finite number of at least 0'
  return ''


def _check_model(config):
  encoder, model = config.encoder, config.model
  if encoder.mean_over != 'tokens' and encoder.pooling != 'mean':
    raise UserError(
        f'config.encoder.mean_over={encoder.mean_over} means nothing to '
        f'pooling={encoder.pooling}: set config.encoder.pooling=mean.')
  heads, width = model.get('num_heads', 1), model.get('qkv_width', 0)
  if width % heads:
    raise UserError(
        f'config.model.num_heads={heads} does not divide '
        f'config.model.qkv_width={width}: choose a divisor.')
