"""Checks a config against its declaration, before any work is done.

The declaration is `lra.schema.fields` and the arguments of each mixer.
"""

import dataclasses
import math
import re

import numpy as np
from ml_collections import ConfigDict
from ml_collections.config_dict import FieldReference

from lra import models
from lra.configs.protocols import PROTOCOLS
from lra.core import paths, tasks
from lra.core.errors import UserError, choose
from lra.schema.fields import COUNT, FIELDS, MANY, Field

# Fields that a group of `config.optim.groups` may override.
GROUP_FIELDS = ('learning_rate', 'weight_decay')

_LONGEST = 100  # most characters of a value in a message
_LIMITS = ('low', 'high', 'above', 'below', 'choices')
_KINDS = {bool: 'True or False', str: 'text', tuple: 'a tuple',
          int: 'a whole number', float: 'a finite number'}


def check(config) -> None:
  """Checks every field, and fields that depend on each other.

  Args:
    config: a whole config, references resolved or not.

  Raises:
    UserError: a field is not valid; the message names it and its limits.
  """
  flat, failed = flatten(config)
  for name in FIELDS:
    optional = name.startswith('model.') and name != 'model.name'
    if name not in flat and name not in failed and not optional:
      raise UserError(
          f'config.{name} is missing: begin with configs/base.py, get_config.')
    if name in flat:
      _check_field(name, flat[name], FIELDS[name])
  for name in flat:
    if name not in FIELDS and not name.startswith('model.'):
      raise UserError(
          f'config.{name} is unknown: declare it in lra/schema/fields.py.')
  check_arguments(models.mixer(config.model.name), config.model.name, {
      name.removeprefix('model.'): value for name, value in flat.items()
      if name.startswith('model.')})
  for name, error in failed.items():
    raise UserError(
        f'config.{name} does not follow from the other fields '
        f'({type(error).__name__}: {error}): set it too.')
  _check_task(config)
  _check_train(config.train, config.encoder)
  _check_optim(config.optim)
  _check_ssm(config)
  _check_init(config)
  _check_model(config)


def sharing(train, encoder) -> int:
  """Returns how many examples share batch-norm statistics.

  A microbatch is a multiple of this number.

  Args:
    train, encoder: these groups of a config.
  """
  if encoder.norm != 'batch':
    return 1
  return encoder.norm_examples or train.batch_size


def flatten(config, prefix=''):
  """Returns {name: value}, and {name: error} of values that raise an error."""
  flat, failed = {}, {}
  for key, value in config.items(preserve_field_references=True):
    name = f'{prefix}{key}'
    try:
      value = value.get() if isinstance(value, FieldReference) else value
    except Exception as e:  # a function of a config file may raise any error
      failed[name] = e
    else:
      group = isinstance(value, ConfigDict) and len(value)
      found = flatten(value, f'{name}.') if group else ({name: value}, {})
      flat.update(found[0])
      failed.update(found[1])
  return flat, failed


def check_arguments(mixer: type, model: str, arguments: dict) -> None:
  """Checks `config.model` against the fields that a mixer declares.

  Args:
    mixer: the class.
    model: its name.
    arguments: `config.model` as a dict, `name` included.

  Raises:
    UserError: the mixer lacks `dtype`, or an argument is unknown or not in its
      range.
  """
  declared = {f.name: f for f in dataclasses.fields(mixer)}
  if 'dtype' not in declared:
    raise UserError(
        f'The Mixer of lra/models/{model}.py has no dtype: add the field '
        '"dtype: jnp.dtype = jnp.float32" and give it to its layers.')
  known = sorted(set(declared) - set(models.GIVEN))
  for name, value in arguments.items():
    if name != 'name' and name not in known:
      raise UserError(
          f'config.model.{name} means nothing to {model}: its arguments '
          f'are {", ".join(known)}.')
    if f'model.{name}' not in FIELDS:
      field = declared_field(declared[name])
      if field:
        _check_field(f'model.{name}', value, field)


def declared_field(argument: dataclasses.Field) -> Field | None:
  """Returns the type and limits of an argument; None if any value is valid."""
  kind = {t.__name__: t for t in _KINDS}.get(
      getattr(argument.type, '__name__', argument.type))
  if kind is None:
    return None
  limits = {k: v for k, v in argument.metadata.items() if k in _LIMITS}
  if kind is int and not limits:
    limits = dict(low=-COUNT, high=COUNT)
  return Field(kind, '', **limits)


def check_choice(field: str, value, choices) -> None:
  """Raises a UserError naming `field` unless `value` is one of `choices`."""
  if value not in choices:
    raise UserError(
        f'{field}={value!r} is not possible: {choose(value, choices)}')


def _check_field(name: str, value, field: Field):
  if field.choices:
    return check_choice(f'config.{name}', value, field.choices)
  limits = _limits(field)
  valid = _is(value, field.type) and _inside(value, field) and not (
      field.letters and not re.fullmatch(f'{field.letters}+', value))
  if valid and isinstance(value, float):
    rounded = _in_float32(value)
    valid = _inside(rounded, dataclasses.replace(field, low=None, high=None))
    limits = limits if valid else f'{limits}, and it is {rounded} in float32'
  if not valid:
    raise UserError(
        f'config.{name}={_shown(value)} is not possible: it must be '
        f'{_KINDS[field.type]}{limits and " " + limits}.')


def _shown(value):
  """Returns the value as one short line."""
  try:
    text = ' '.join(str(value).split())
  except ValueError:  # a number with thousands of digits
    text = f'a {type(value).__name__}'
  return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'


def _is(value, kind):
  if kind is float:
    return isinstance(value, float) and math.isfinite(value) or (
        type(value) is int)
  if kind is tuple:  # JSON has lists instead
    return isinstance(value, (tuple, list))
  return type(value) is kind


def _in_float32(value):
  """Rounds a number to float32, with 0 for subnormals, as devices do."""
  with np.errstate(over='ignore', under='ignore'):
    rounded = np.float32(value)
  return 0.0 if abs(rounded) < np.finfo(np.float32).tiny else float(rounded)


def _inside(value, field):
  return not (
      field.low is not None and value < field.low or
      field.high is not None and value > field.high or
      field.above is not None and value <= field.above or
      field.below is not None and value >= field.below)


def _limits(field):
  """Returns the range of a field in words, '' if it has none."""
  words = {'at least': field.low, 'above': field.above,
           'at most': field.high, 'below': field.below}
  if field.letters:
    return f'of {field.letters}'
  said = ' and '.join(
      f'{word} {limit}' for word, limit in words.items() if limit is not None)
  return f'of {said}' if said.startswith('at') else said


def _check_task(config):
  task, L = tasks.get(config.task), config.seq_len
  paths.local(config.data_dir, 'config.data_dir')
  if config.mask_black and not task.image:
    raise UserError(
        f'config.mask_black=True means nothing to {task.name}, which has no '
        'pixels: set it to False.')
  if config.encoder.inputs == 'values' and not task.image:
    raise UserError(
        f'config.encoder.inputs=values means nothing to {task.name}, which has '
        'no pixels: set it to ids.')
  if config.train.masked_loss and config.objective != 'classification':
    raise UserError(
        f'config.train.masked_loss={config.train.masked_loss} means nothing to '
        f'config.objective={config.objective}: set it to 0.')
  if config.train.augment:
    _check_augment(task, L)
  for name in ('tokenizer', 'encoder.vocab_size'):
    value = config.encoder.vocab_size if '.' in name else config.tokenizer
    if value and not task.text:
      raise UserError(f'config.{name}={value} means nothing to {task.name}, '
                      'which has no texts of one document: leave it out.')
  paths.local(config.tokenizer, 'config.tokenizer')
  if task.probe and L not in (0, task.seq_len):
    raise UserError(
        f'config.seq_len={L} is not possible: {task.name} queries tokens '
        f'of the whole sequence, of {task.seq_len}; set it to 0.')
  if L > task.seq_len:
    raise UserError(
        f'config.seq_len={L} is not possible: {task.name} has sequences of '
        f'{task.seq_len} tokens; choose 1 to {task.seq_len}, or 0 for all.')


def _check_augment(task, L):
  """Raises UserError if a task has no random changes, or not of length L."""
  if task.windows:
    if L in (0, task.seq_len):
      raise UserError(
          f'config.train.augment=True takes a random window of each document '
          f'of {task.name}: set config.seq_len to its length, below '
          f'{task.seq_len}.')
  elif not task.image and task.dataset != 'listops':
    raise UserError(
        f'config.train.augment=True means nothing to {task.name}, for which no '
        'random change is known: set it to False.')
  elif L not in (0, task.seq_len):
    raise UserError(
        f'config.seq_len={L} is not possible with config.train.augment=True, '
        f'which needs whole examples of {task.name}: set it to 0.')


def _check_train(train, encoder):
  if train.include_val and train.select == 'best':
    raise UserError(
        'config.train.include_val leaves no validation split to choose the '
        'best checkpoint: set config.train.select=last.')
  if train.microbatch_size and train.batch_size % train.microbatch_size:
    raise UserError(
        f'config.train.microbatch_size={train.microbatch_size} does not '
        f'divide config.train.batch_size={train.batch_size}: choose a '
        'divisor, or 0 for the best size on this machine.')
  share = sharing(train, encoder)
  if train.batch_size % share:
    raise UserError(
        f'config.encoder.norm_examples={share} does not divide '
        f'config.train.batch_size={train.batch_size}: choose a divisor.')
  if train.microbatch_size % share:
    raise UserError(
        f'config.train.microbatch_size={train.microbatch_size} is not possible '
        f'with norm=batch, whose statistics are those of {share} examples: set '
        'it to 0 or a multiple, or config.encoder.norm_examples to a divisor.')
  if not all(type(n) is int and 0 < n <= MANY for n in train.lengths):
    raise UserError(
        f'config.train.lengths={_shown(train.lengths)} is not possible: give '
        f'whole numbers of 1 to {MANY}, or () for the full length only.')


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


def _check_ssm(config):
  train, name = config.train, config.model.name
  given = [field for field in ('ssm_learning_rate', 'ssm_weight_decay')
           if train[field] != -1]
  known = getattr(models.module(name), 'PARAM_GROUPS', ())
  # A protocol sets these fields for all mixers. They have no effect on a mixer
  # without such parameters.
  theirs = PROTOCOLS.get(config.protocol, {}).get(config.task, {}).get(
      'train', {})
  for field in given + ['ssm_parameters'] * bool(train.ssm_parameters):
    value = train[field]
    if not known and value == theirs.get(field):
      continue
    if not known:
      raise UserError(
          f'config.train.{field}={_shown(value)} means nothing to {name}, '
          'whose file names no state-space parameters (PARAM_GROUPS): leave it '
          'out, or use config.optim.groups.')
    if field in given and value < 0:
      raise UserError(
          f'config.train.{field}={value} is not possible: it must be -1, for '
          'that of the other parameters, or at least 0.')
    if not given:
      raise UserError(
          'config.train.ssm_parameters means nothing alone: set '
          'config.train.ssm_learning_rate or config.train.ssm_weight_decay '
          'too.')
  if train.ssm_parameters == theirs.get('ssm_parameters'):
    return
  for parameter in train.ssm_parameters:
    check_choice('config.train.ssm_parameters: the name', parameter, known)


def _check_init(config):
  phase = config.pretrain
  if config.init_rules and not config.init_from:
    raise UserError('config.init_rules means nothing without config.init_from: '
                    'name the run to start from.')
  if config.init_from and phase.objective:
    raise UserError('config.init_from and config.pretrain.objective both set '
                    'the first parameters: leave one out.')
  for name in ('steps', 'learning_rate'):
    if not phase.objective and (
        phase[name] != FIELDS[f'pretrain.{name}'].default):
      raise UserError(f'config.pretrain.{name} means nothing without '
                      'config.pretrain.objective: choose masked or causal.')
  if -1 < phase.learning_rate < 0:
    raise UserError(
        f'config.pretrain.learning_rate={phase.learning_rate} is not possible: '
        'it must be -1, for that of train, or at least 0.')
  for rule in config.init_rules:
    problem = _pair_problem(rule) or (
        '' if rule[1] is None or isinstance(rule[1], str) else
        'whose second part is neither a name nor None')
    if problem:
      raise UserError(
          f'config.init_rules has the rule {rule!r}, {problem}: give pairs of '
          'a regular expression and the name of an array of the source, or '
          'None for a fresh one.')


def _pair_problem(pair):
  """Returns why this is no pair of an expression and more; '' if it is."""
  if not (isinstance(pair, (tuple, list)) and len(pair) == 2
          and isinstance(pair[0], str)):
    return 'which is not such a pair'
  try:
    re.compile(pair[0])
  except (re.error, RecursionError, OverflowError) as e:
    return f'whose expression cannot be read ({e})'
  return ''


def _group_problem(group):
  """Returns the problem of a group of parameters, '' if there is none."""
  problem = _pair_problem(group)
  if problem:
    return problem
  own = group[1]
  if own is None:
    return ''
  if not hasattr(own, 'items'):
    return 'whose second part is neither a dict nor None'
  for name, value in own.items():
    if name not in GROUP_FIELDS:
      return f'with {name!r}, which is not one of {", ".join(GROUP_FIELDS)}'
    field = FIELDS[f'train.{name}']
    if not _is(value, float) or not _inside(value, field):
      return f'whose {name} is not a finite number {_limits(field)}'
  return ''


def _check_model(config):
  encoder, model = config.encoder, config.model
  if encoder.mlp_width >> max(encoder.head_layers - 1, 0) == 0:
    raise UserError(
        f'config.encoder.head_layers={encoder.head_layers} halves '
        f'config.encoder.mlp_width={encoder.mlp_width} until nothing is left: '
        'choose fewer layers.')
  if encoder.mean_over != 'tokens' and encoder.pooling != 'mean':
    raise UserError(
        f'config.encoder.mean_over={encoder.mean_over} means nothing to '
        f'pooling={encoder.pooling}: set config.encoder.pooling=mean.')
  if encoder.norm != 'batch':
    for name in ('norm_momentum', 'norm_examples'):
      if encoder[name] != FIELDS[f'encoder.{name}'].default:
        raise UserError(
            f'config.encoder.{name}={encoder[name]} means nothing to '
            f'norm={encoder.norm}: leave it out, or set norm=batch.')
  heads, width = model.get('num_heads', 1), model.get('qkv_width', 0)
  if width % heads:
    raise UserError(
        f'config.model.num_heads={heads} does not divide '
        f'config.model.qkv_width={width}: choose a divisor.')
