"""Checks a config against `lra.schema.fields` and RULES; `resolve` calls it."""

import dataclasses
import functools
import math
import operator
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import pydantic
from ml_collections import ConfigDict
from ml_collections.config_dict import FieldReference

from lra import models
from lra.configs import protocols
from lra.core import paths, tasks
from lra.core.errors import UserError, choose
from lra.schema import fields, identity
from lra.schema.fields import FIELDS, MANY, PATCH
from lra.schema.synonyms import likeliest

# Fields that a group of `config.optim.groups` may override.
GROUP_FIELDS = ('learning_rate', 'weight_decay')

_LONGEST = 100  # most characters of a value in a message
_WIDTH = 76
# Limits of the machine, not of the field: they are not printed.
_NO_LIMIT = (fields.COUNT, -fields.COUNT, MANY, fields.LARGEST)
_LIMITS = {'low': 'ge', 'high': 'le', 'above': 'gt', 'below': 'lt'}
_KINDS = {bool: 'True or False', str: 'text', int: 'a whole number',
          float: 'a finite number', fields.Tuple: 'a tuple'}


class Failed(NamedTuple):
  """The value of a derived field whose function raises an error."""
  error: Exception


def plain(config: ConfigDict) -> dict[str, Any]:
  """Returns a config as nested dicts, in which a value may be `Failed`."""
  made = {}
  for name, value in config.items(preserve_field_references=True):
    try:
      value = value.get() if isinstance(value, FieldReference) else value
    except Exception as e:  # a function of a config file may raise any error
      value = Failed(e)
    made[name] = plain(value) if isinstance(value, ConfigDict) else value
  return made


def missing(values: dict) -> str:
  """Returns the first missing field, or ''; not all mixers have heads."""
  known = identity.flatten(values)
  return next((name for name in FIELDS if name not in known and not (
      name.startswith('model.') and name != 'model.name')), '')


def check(config: ConfigDict) -> None:
  """Checks every field of a config, and fields that depend on each other."""
  values = plain(config)
  if name := missing(values):
    raise UserError(
        f'config.{name} is missing: begin with configs/base.py, get_config.')
  _validate(fields.Config, values, FIELDS)
  name = config.model.name
  check_arguments(models.mixer(name), name, values['model'])
  for field, value in identity.flatten(values).items():
    if isinstance(value, Failed):
      raise UserError(
          f'config.{field} does not follow from the other fields '
          f'({type(value.error).__name__}: {value.error}): set it too.')
  for field in ('data_dir', 'tokenizer'):
    paths.local(config[field], f'config.{field}')
  for sentence in broken(RULES, config):
    raise UserError(sentence)


def broken(rules: tuple, config: ConfigDict) -> Iterator[str]:
  """Yields the sentences of those of RULES or NOTES that a config breaks."""
  task, values = tasks.get(config.task), identity.flatten(plain(config))
  for field, wrong, text in rules:
    value, usual = values.get(field), FIELDS[field].default
    if value not in (None, usual, []) and (found := wrong(config, task)):
      yield text.format(
          it=f'config.{field}={_shown(value)}', name=f'config.{field}',
          c=config, t=task, found=found)


def check_arguments(mixer: type, model: str, values: dict) -> None:
  """Checks the `values` of `config.model` against the class of a mixer."""
  declared = arguments(mixer)
  if 'dtype' not in declared.model_fields:
    raise UserError(
        f'The Mixer of lra/models/{model}.py has no dtype: add the field '
        '"dtype: jnp.dtype = jnp.float32" and give it to its layers.')
  own = {name: value for name, value in values.items() if name != 'name'}
  known = sorted(set(declared.model_fields) - set(models.GIVEN))
  for name in own:
    if name not in known:
      raise UserError(f'config.model.{name} means nothing to {model}: its '
                      f'arguments are {", ".join(known)}.')
  _validate(declared, own, declared.model_fields, 'model.')


@functools.cache
def arguments(mixer: type) -> type[fields.Group]:
  """Returns the schema of a mixer's fields, which are all optional.

  A new default in a subclass keeps the meaning that the base class gave.
  """
  about = getattr(sys.modules[mixer.__module__], 'ABOUT', None)
  kernels = ', '.join(about.kernels) if about else ''
  meanings = {'kernel': f"'auto' or one of {kernels}."} if kernels else {}
  for field in (field for cls in reversed(mixer.__mro__) for field in getattr(
      cls, '__dataclass_fields__', {}).values()):
    meanings[field.name] = field.metadata.get('doc') or meanings.get(field.name)
  return pydantic.create_model('Arguments', __base__=fields.Group, **{
      field.name: _declared(field, meanings[field.name])
      for field in dataclasses.fields(mixer)})


def _declared(field, meaning):
  kind = {kind.__name__: kind for kind in (bool, str, int, float, tuple)}.get(
      getattr(field.type, '__name__', field.type))
  limits = {_LIMITS[name]: limit for name, limit in field.metadata.items()
            if name in _LIMITS}
  if kind is int and not limits:
    limits = {'ge': -fields.COUNT, 'le': fields.COUNT}
  if kind and (choices := field.metadata.get('choices')):
    kind = Literal[tuple(choices)]
  return (fields.Tuple if kind is tuple else kind or Any), pydantic.Field(
      None, description=meaning, **limits)


def _validate(schema, values, declared, prefix=''):
  try:
    schema.model_validate(values)
  except pydantic.ValidationError as e:
    for error in e.errors(include_url=False):
      if not isinstance(error['input'], Failed):
        raise UserError(_sentence(error, declared, prefix)) from None


def _sentence(error, declared, prefix):
  where, value = list(map(str, error['loc'])), error['input']
  name = next((name for name in ('.'.join(where[:2]), where[0])
               if name in declared), '.'.join(where))
  if name not in declared:
    close = likeliest(name, FIELDS)
    return f'config.{name} is unknown: ' + (
        f'did you mean config.{close}?' if close else
        'declare it in lra/schema/fields.py.')
  info, name = declared[name], f'config.{prefix}{name}'
  if choices := fields.choices(info):
    return f'{name}={value!r} is not possible: {choose(value, choices)}'
  words = ' and '.join(
      f'{word} {limit}' for word, limit in fields.bounds(info).items())
  words = f' of {words}' if words.startswith('at') else words and f' {words}'
  for part in info.metadata:
    if pattern := getattr(part, 'pattern', ''):
      words = f' of {pattern.strip("^+$")}'
  return (f'{name}={_shown(value)} is not possible: it must be '
          f'{_KINDS[info.annotation]}{words}.')


def _shown(value):
  try:
    text = ' '.join(str(value).split())
  except ValueError:  # a number with thousands of digits
    text = f'a {type(value).__name__}'
  return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'


def sharing(c) -> int:
  """Returns how many examples share the statistics of a batch norm."""
  return 1 if c.encoder.norm != 'batch' else (
      c.encoder.norm_examples or c.train.batch_size)


def _whole(c, t):
  return c.seq_len in (0, t.seq_len)


def _pair(pairs, fault: Callable[[Any], str]) -> str:
  """Returns the first pair with a fault, in words; '' if all are valid."""
  for pair in pairs:
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2
            and isinstance(pair[0], str)):
      return f'{pair!r}, which is not such a pair'
    try:
      re.compile(pair[0])
      found = fault(pair[1])
    except (re.error, RecursionError, OverflowError) as e:
      found = f'whose expression cannot be read ({e})'
    if found:
      return f'{pair!r}, {found}'
  return ''


def _origin_fault(name):
  return '' if name is None or isinstance(name, str) else (
      'whose second part is neither a name nor None')


def _group_fault(own):
  if own is not None and not hasattr(own, 'items'):
    return 'whose second part is neither a dict nor None'
  for name, value in (own or {}).items():
    if name not in GROUP_FIELDS:
      return f'with {name!r}, which is not one of {", ".join(GROUP_FIELDS)}'
    try:
      fields.Train.model_validate({name: value})
    except pydantic.ValidationError:
      return (f'whose {name} is not a finite number of at least 0 and at most '
              f'{fields.LARGEST}')
  return ''


def _groups(c):
  """Names of the mixer's state-space parameters."""
  return getattr(models.module(c.model.name), 'PARAM_GROUPS', ())


def _own(c, name):
  """Returns whether the value of a field is not the protocol's."""
  group, key = name.split('.')
  theirs = (protocols.of(c.protocol, c.task) or {}).get(group, {})
  value = c[group][key]
  return theirs.get(key) != (
      tuple(value) if isinstance(value, list) else value)


def _unknown(names, known):
  return next((f'{name!r} is not possible: {choose(name, known)}'
               for name in names if name not in known), '')


_IMAGES = '{it} means nothing to {t.name}, which has no pixels: set it to '
_TEXTS = ('{it} means nothing to {t.name}, which has no texts of one document: '
          'leave it out.')
_RATES = ('ssm_learning_rate', 'ssm_weight_decay')
# Triples of a field, a function of config and task, and an error. The config is
# wrong if the field has not its default and the function is true. In the error,
# {it} is the field with its value, {name} is the field without it, {c} is the
# config, {t} the task and {found} the result of the function.
RULES = (
    ('mask_black', lambda c, t: not t.image, _IMAGES + 'False.'),
    ('encoder.inputs', lambda c, t: not t.image, _IMAGES + 'ids.'),
    ('encoder.inputs', lambda c, t: c.encoder.inputs == 'patches' and (
        not _whole(c, t) or math.isqrt(t.seq_len) % PATCH),
     '{it} needs whole images whose side is a multiple of 4: set '
     'config.seq_len=0, or config.encoder.inputs=values.'),
    ('encoder.inputs', lambda c, t: c.encoder.inputs == 'patches' and (
        c.train.masked_loss or c.pretrain.objective or c.train.lengths
        or c.objective != 'classification'),
     '{it} predicts no single pixels and cuts no image: leave out '
     'train.masked_loss, pretrain.objective, train.lengths and objective.'),
    ('train.masked_loss', lambda c, t: c.objective != 'classification',
     '{it} means nothing to config.objective={c.objective}: set it to 0.'),
    ('train.augment', lambda c, t: t.windows and _whole(c, t),
     '{it} takes a random window of each document of {t.name}: set '
     'config.seq_len to its length, below {t.seq_len}.'),
    ('train.augment',
     lambda c, t: not (t.windows or t.image and not t.own or (
         t.dataset == 'listops')),
     '{it} means nothing to {t.name}, for which no random change is known: set '
     'it to False.'),
    ('seq_len',
     lambda c, t: c.train.augment and not (t.windows or _whole(c, t)),
     '{it} is not possible with config.train.augment=True, which needs whole '
     'examples of {t.name}: set it to 0.'),
    ('tokenizer', lambda c, t: not t.text, _TEXTS),
    ('encoder.vocab_size', lambda c, t: not t.text, _TEXTS),
    ('seq_len', lambda c, t: t.probe and not _whole(c, t),
     '{it} is not possible: {t.name} queries tokens of the whole sequence, of '
     '{t.seq_len}; set it to 0.'),
    ('seq_len', lambda c, t: c.seq_len > t.seq_len,
     '{it} is not possible: {t.name} has sequences of {t.seq_len} tokens; '
     'choose 1 to {t.seq_len}, or 0 for all.'),
    ('train.include_val', lambda c, t: c.train.select == 'best',
     '{name} leaves no validation split to choose the best checkpoint: set '
     'config.train.select=last.'),
    ('train.microbatch_size',
     lambda c, t: c.train.batch_size % c.train.microbatch_size,
     '{it} does not divide config.train.batch_size={c.train.batch_size}: '
     'choose a divisor, or 0 for the best size on this machine.'),
    ('encoder.norm_examples', lambda c, t: c.train.batch_size % sharing(c),
     '{it} does not divide config.train.batch_size={c.train.batch_size}: '
     'choose a divisor.'),
    ('train.microbatch_size',
     lambda c, t: c.train.microbatch_size % sharing(c) and sharing(c),
     '{it} is not possible with norm=batch, whose statistics are those of '
     '{found} examples: set it to 0 or a multiple, or '
     'config.encoder.norm_examples to a divisor.'),
    ('train.lengths', lambda c, t: not all(
        type(n) is int and 0 < n <= MANY for n in c.train.lengths),
     '{it} is not possible: give whole numbers of 1 to 1048576, or () for the '
     'full length only.'),
    ('optim.final_fraction',
     lambda c, t: c.optim.schedule not in ('cosine', 'linear'),
     '{it} means nothing to the schedule {c.optim.schedule}: set it to 0.'),
    ('optim.momentum', lambda c, t: c.optim.name not in ('sgd', 'muon'),
     '{it} means nothing to the optimizer {c.optim.name}: leave it out, or '
     'choose sgd or muon.'),
    ('optim.groups', lambda c, t: _pair(c.optim.groups, _group_fault),
     '{name} has the group {found}: give pairs of a regular expression and '
     'dict(learning_rate=..., weight_decay=...), or None for frozen.'),
    # A protocol sets these for all mixers: without effect on some.
    *((f'train.{name}', lambda c, t, name=name: (
        not _groups(c) and _own(c, f'train.{name}')),
       '{it} means nothing to {c.model.name}, whose file names no state-space '
       'parameters (PARAM_GROUPS): leave it out, or use config.optim.groups.')
      for name in (*_RATES, 'ssm_parameters')),
    *((f'train.{name}', lambda c, t, name=name: _groups(c) and (
        c.train[name] < 0),
       '{it} is not possible: it must be -1, for that of the other parameters, '
       'or at least 0.') for name in _RATES),
    ('train.ssm_parameters', lambda c, t: _groups(c) and all(
        c.train[name] == -1 for name in _RATES),
     '{name} means nothing alone: set config.train.ssm_learning_rate or '
     'config.train.ssm_weight_decay too.'),
    ('train.ssm_parameters', lambda c, t: _own(c, 'train.ssm_parameters') and (
        _unknown(c.train.ssm_parameters, _groups(c))),
     '{name}: the name={found}'),
    ('init_rules', lambda c, t: not c.init_from,
     '{name} means nothing without config.init_from: name the run to start '
     'from.'),
    ('init_from', lambda c, t: c.pretrain.objective,
     '{name} and config.pretrain.objective both set the first parameters: '
     'leave one out.'),
    *((f'pretrain.{name}', lambda c, t: not c.pretrain.objective,
       '{name} means nothing without config.pretrain.objective: choose masked '
       'or causal.') for name in ('steps', 'learning_rate')),
    ('pretrain.learning_rate', lambda c, t: c.pretrain.learning_rate < 0,
     '{it} is not possible: it must be -1, for that of train, or at least 0.'),
    ('init_rules', lambda c, t: _pair(c.init_rules, _origin_fault),
     '{name} has the rule {found}: give pairs of a regular expression and the '
     'name of an array of the source, or None for a fresh one.'),
    ('encoder.head_layers',
     lambda c, t: not c.encoder.mlp_width >> c.encoder.head_layers - 1,
     '{it} halves config.encoder.mlp_width={c.encoder.mlp_width} until nothing '
     'is left: choose fewer layers.'),
    ('encoder.mean_over', lambda c, t: c.encoder.pooling != 'mean',
     '{it} means nothing to pooling={c.encoder.pooling}: set '
     'config.encoder.pooling=mean.'),
    # A protocol sets these whatever the other field is.
    *((name, lambda c, t, name=name, other=other, needed=needed: (
        _own(c, name) and (found := operator.attrgetter(other)(c)) not in needed
        and f'config.{other}={found}'),
       '{it} means nothing with {found}: leave it out.')
      for name, other, *needed in (
          ('train.b1', 'optim.name', 'adamw', 'adam', 'lion', 'muon'),
          ('train.b2', 'optim.name', 'adamw', 'adam', 'lion', 'muon'),
          ('train.eps', 'optim.name', 'adamw', 'adam', 'muon'),
          ('encoder.norm_eps', 'encoder.norm', 'layer'),
          *((f'encoder.{name}', 'encoder.norm', 'layer', 'scale', 'rms',
             'batch') for name in ('norm_place', 'norm_embedding')),
          ('encoder.gelu', 'encoder.block', 'mlp'),
          ('encoder.head_layers', 'encoder.pooler', False),
          ('encoder.max_positions', 'encoder.positions', 'learned'),
          ('encoder.cls_has_position', 'encoder.pooling', 'cls'),
          ('encoder.head', 'task', *(
              name for name, task in tasks.TASKS.items() if task.dual)))),
    ('encoder.tie_dropout', lambda c, t: not c.encoder.dropout and _own(
        c, 'encoder.tie_dropout'), '{it} needs a config.encoder.dropout.'),
    *((f'encoder.{name}', lambda c, t: c.encoder.norm != 'batch',
       '{it} means nothing to norm={c.encoder.norm}: leave it out, or set '
       'norm=batch.') for name in ('norm_momentum', 'norm_examples')),
    ('model.num_heads',
     lambda c, t: c.model.get('qkv_width', 0) % c.model.num_heads and (
         'encoder.width' if c.model.qkv_width == c.encoder.width else
         'model.qkv_width'),
     'config.{found}={c.model.qkv_width} cannot be split into {it} heads: '
     'choose a multiple, or a number of heads that divides it.'),
)

# Settings that are possible, but whose effect is small or missing; like RULES.
NOTES = (
    ('train.warmup_steps', lambda c, t: c.train.warmup_steps >= c.train.steps
     and (_own(c, 'train.steps') or _own(c, 'train.warmup_steps')),
     '{it} takes all of config.train.steps={c.train.steps}, so the learning '
     'rate never falls, and may never reach its peak.'),
    ('train.steps', lambda c, t: c.train.steps == 1 and not (
        c.train.warmup_steps or c.optim.final_fraction)
     and c.optim.schedule in ('cosine', 'linear'),
     '{it} learns nothing: the only step has the learning rate 0.'),
    ('optim.ema', lambda c, t: (
        (rest := c.optim.ema ** c.train.steps) > 0.1 and f'{rest:.0%}'),
     'After config.train.steps={c.train.steps}, {found} of the moving average '
     'of {it} are still the initial parameters: choose a smaller decay.'),
    *((f'train.cpu_{name}', lambda c, t, name=name: (
        c.train[name] and _own(c, f'train.cpu_{name}')), (
            f'{{it}} has no effect, since config.train.{name} is set.'))
      for name in ('microbatch_size', 'eval_batch_size')),
    *((f'train.{name}', lambda c, t: (
        {*c.train.ssm_parameters} and {*c.train.ssm_parameters}.isdisjoint(
            _groups(c)) and ', '.join(_groups(c))),
       '{it} has no effect, since none of config.train.ssm_parameters is in '
       '{c.model.name}, which has {found}.') for name in _RATES),
)


def described(config, marks: Mapping[str, str] | None = None) -> str:
  """Returns the text of --print_config: fields with values and meanings.

  `marks` has who set a field that has not its default.
  """
  marks = marks or {}
  own = arguments(models.mixer(config.model.name)).model_fields
  known = {f'model.{name}': info for name, info in own.items()} | FIELDS
  values, lines = identity.flatten(config.to_dict()), []
  for name in sorted(values, key=[*FIELDS, *known].index):
    mark = marks.get(name, '')
    lines += [f'{name} = {values[name]!r}{mark and f"  # {mark}"}',
              *textwrap.wrap(
        meaning(known[name]), _WIDTH, initial_indent='    ',
        subsequent_indent='    ', break_long_words=False,
        break_on_hyphens=False)]
  return '\n'.join(lines)


def meaning(info: fields.FieldInfo) -> str:
  """Returns the meaning of a field, and the values that it may have."""
  if may := fields.choices(info):
    limits = f'One of {", ".join(str(one) or "empty" for one in may)}.'
  else:
    words = ' and '.join(
        f'{word} {limit:g}' for word, limit in fields.bounds(info).items()
        if limit not in _NO_LIMIT)
    limits = words and f'{words[0].upper()}{words[1:]}.'
  return ' '.join(filter(None, (info.description, limits)))
