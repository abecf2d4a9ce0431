"""Makes the config of a task under a protocol; also has helpers for configs.

`configs/<model>.py` sets `get_config = of('<model>', ...)`, with the arguments
in which its model differs from the protocol and the defaults of its mixer.
`lra/schema/fields.py` documents each field and its allowed values.

Derived fields are references: `--config.encoder.width=128` also changes the
width of the heads and the initial embedding, unless these are set too.
"""

import collections
from collections.abc import Callable
from typing import Any

import ml_collections
from ml_collections.config_dict import FieldReference

from lra import models
from lra.configs import protocols
from lra.configs.protocols import ARGUMENTS, PROTOCOLS, TASK_ARGUMENTS
from lra.configs.protocols.recurrence import MODEL_ARGUMENTS
from lra.core import tasks
from lra.core.errors import UserError, choose, meant
from lra.schema.fields import FIELDS

# Types that a flag can parse; fields of other types become `object` fields.
_FLAGS = (bool, int, float, str, tuple)
_Op = collections.namedtuple('_Op', ['fn', 'args'])

# Fields that are derived from other fields unless a protocol sets them.
FOLLOWING = {
    'encoder.embedding_std': lambda encoder: derived(
        lambda width: width ** -0.5, encoder.get_ref('width')),
    'model.qkv_width': lambda encoder: encoder.get_oneway_ref('width'),
}


def get_config(arg: str = '', model: str = '') -> ml_collections.ConfigDict:
  """Returns the config of a task under a protocol.

  Args:
    arg: `<task>`, which `,protocol=<protocol>` and `,pretrain=<objective>` may
      follow.
    model: a file of lra/models. `config.model` gets all arguments of its mixer:
      the protocol's value of an argument, else the mixer's default. Without a
      model the file sets `config.model.name` and the arguments itself.
  """
  task, protocol, phase = _parse(arg)
  config = _make(task, protocol)
  config.pretrain.objective = phase
  if model:
    _fill(config, model)
  return config


def of(model: str, *, pooling: str = '', without: tuple[str, ...] = (),
       **arguments) -> Callable[..., ml_collections.ConfigDict]:
  """Returns `get_config` of a model's config file, a function of `arg`.

  Arguments of the mixer are values, or functions of the config so far; those in
  `without` are left out. '' leaves the protocol's pooling.
  """
  def made(arg=''):
    config = get_config(arg, model)
    for name, value in arguments.items():
      config.model[name] = value(config) if callable(value) else value
    for name in without:
      del config.model[name]
    if pooling:
      config.encoder.pooling = pooling
    return config

  return made


def _parse(arg):
  task, *options = arg.split(',')
  known = {'protocol': tuple(PROTOCOLS), 'pretrain': ('masked', 'causal')}
  found = {}
  for option in options:
    key, _, value = option.partition('=')
    if key not in known:
      may = ' and '.join(f'{name}={"|".join(values)}'
                         for name, values in known.items())
      close = meant(key, known)
      raise UserError(f'Unknown config option {option!r}: ' + (
          f'did you mean {close}?' if close else
          f'only {may} may follow the task.'))
    if value not in known[key]:
      raise UserError(f'Unknown {key} {value!r}: {choose(value, known[key])}')
    if key in found:
      raise UserError(f'{arg} names {key} twice: name one.')
    found[key] = value
  # By default the first protocol that has the task.
  protocol = found.get('protocol') or next(
      (name for name in PROTOCOLS if protocols.of(name, task) is not None),
      next(iter(PROTOCOLS)))
  _check_task(task, protocol)
  return task, protocol, found.get('pretrain', '')


def _check_task(task, protocol):
  if protocols.of(protocol, task) is not None:
    return
  if tasks.find(task) and task not in tasks.HARDER:
    others = [f'protocol={p}' for p in PROTOCOLS
              if protocols.of(p, task) is not None]
    raise UserError(f'The protocol {protocol} has no {task}: ' + (
        f'choose {" or ".join(others)} for it.' if others else
        'add it in configs/protocols.'))
  what = f'Unknown task {task!r}' if task else (
      '--config=configs/<model>.py:<task> has no task')
  known = set().union(*PROTOCOLS.values()) & set(tasks.TASKS)
  raise UserError(
      f'{what}: {choose(task, sorted(known.union(tasks.own_names())))}')


def _make(task, protocol):
  config = ml_collections.ConfigDict()
  for name, info in FIELDS.items():
    group, dot, _ = name.partition('.')
    if dot and group not in config:
      config[group] = ml_collections.ConfigDict()
    if info.default is not None:
      place, key = _place(config, name)
      place[key] = info.default
  config.task, config.protocol = task, protocol
  config.update(protocols.of(protocol, task))
  missing = [name for name in FIELDS if _place(config, name)[1] not in
             _place(config, name)[0]]
  for name in missing:
    if name not in FOLLOWING:
      raise UserError(
          f'The protocol {protocol} does not set {name} for {task}: add it in '
          'configs/protocols.')
    place, key = _place(config, name)
    place[key] = FOLLOWING[name](config.encoder)
  return config


def _place(config, name):
  """Returns the group of a field, and its name there."""
  group, _, key = name.rpartition('.')
  return (config[group] if group else config), key


def _fill(config, model):
  """Sets the model: its name and every argument of its mixer."""
  config.model.name = model
  defaults = models.defaults(model)
  for name in set(config.model) - {'name', *defaults}:
    del config.model[name]  # such as num_heads of a mixer without heads
  given = arguments(config)
  for name, default in defaults.items():
    if name not in config.model:
      value = given.get(name, default)
      # As an `object` field, a flag may change it to any literal.
      config.model[name] = value if isinstance(value, _FLAGS) else (
          FieldReference(value, field_type=object))


def arguments(config) -> dict[str, Any]:
  """Returns the protocol's values of arguments that several mixers have."""
  of_model = MODEL_ARGUMENTS.get((config.protocol, config.model.name), {})
  return {**ARGUMENTS[config.protocol],
          **TASK_ARGUMENTS.get((config.protocol, config.task), {}),
          **of_model.get(config.task, {})}


def settings(task: str, protocol: str) -> dict[str, Any]:
  """Returns a protocol's settings for a task: {dotted field: value}.

  The name of the model is left out.
  """
  if protocol not in PROTOCOLS:
    raise UserError(
        f'Unknown protocol {protocol!r}: {choose(protocol, PROTOCOLS)}')
  _check_task(task, protocol)
  config = _make(task, protocol).copy_and_resolve_references()
  places = {name: _place(config, name) for name in FIELDS
            if name != 'model.name'}
  return {name: place[key] for name, (place, key) in places.items()}


def argument(config, name: str):
  """Returns the protocol's value of an argument that several mixers have."""
  return arguments(config)[name]


def derived(function: Callable, *values) -> FieldReference:
  """Returns a reference to `function(*values)`, computed when it is read.

  Values are references, for example `config.get_ref(name)`, or plain. The type
  of the result must not change.
  """
  now = [v.get() if isinstance(v, FieldReference) else v for v in values]
  return FieldReference(
      function(*now), op=_Op(lambda _, *args: function(*args), values))


def length(config) -> FieldReference:
  """Returns the tokens per sequence without CLS: the task's, or seq_len."""
  return derived(lambda task, seq_len: seq_len or tasks.get(task).seq_len,
                 config.get_ref('task'), config.get_ref('seq_len'))


def encoder_width(config) -> FieldReference:
  """Returns D, for a model whose heads together are as wide as the encoder."""
  return config.encoder.get_oneway_ref('width')


def head_width(config) -> FieldReference:
  """Returns Dh, the width of a head."""
  return derived(lambda width, heads: width // heads,
                 config.model.get_ref('qkv_width'),
                 config.model.get_ref('num_heads'))


def by_size(config, full: int, *, mini: int):
  """Returns a size of blocks, windows or summaries: `mini` on a mini task.

  There it is at most half the number of tokens, so that a pattern stays sparse.
  """
  if not tasks.get(config.task).mini:
    return full
  return derived(lambda L: max(min(mini, L // 2), 1), length(config))


def num_features(config, wanted):
  """Returns `wanted` features, on a mini task at most the number of tokens.

  With more features, exact attention would be cheaper.
  """
  if not tasks.get(config.task).mini:
    return wanted
  return derived(min, wanted, length(config))
