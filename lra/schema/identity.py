"""Computes the identity and hash of a config: which runs are one experiment.

Two configs have the same identity if they differ in MACHINE_FIELDS only. Their
runs share a row of the leaderboard, as do runs that differ in FITTING_FIELDS.
The identity does not change when the code gains a field: a later field is left
out if its value describes earlier versions (`lra.schema.fields.added`).
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from lra.schema import fields

# Fields that describe a machine or a repetition, not an experiment.
MACHINE_FIELDS = ('seed', 'data_dir', 'init_from', 'tokenizer', 'mesh')
# Hardware settings: they change the speed, memory and files of a run, but no
# score. They are in the hash, since a run resumes with the same ones; rows of
# the leaderboard do not depend on them.
FITTING_FIELDS = (
    'train.microbatch_size', 'train.eval_batch_size',
    'train.cpu_microbatch_size', 'train.cpu_eval_batch_size', 'train.lengths',
    'train.log_every', 'train.mixer_std', 'train.checkpoint_minutes',
    'encoder.remat')
# Fields that a run may change without leaving its protocol: those above, those
# that affect the rounding, and the vocabulary, which no protocol names.
FREE_FIELDS = (*MACHINE_FIELDS, *FITTING_FIELDS, 'dtype', 'model.kernel',
               'tokenizer_source')


def unscored(names: Iterable[str]) -> str:
  """Returns why one of these fields cannot be searched, or ''."""
  return next((f'{name} changes no score: search another field'
               for name in names if name in ('data_dir', *FITTING_FIELDS)
               or name.startswith('mesh.')), '')


def is_config(value) -> bool:
  """Returns whether a value of JSON looks like the config of a run."""
  value = value if isinstance(value, dict) else {}
  model = value.get('model', {})
  return isinstance(model, dict) and (
      isinstance(value.get('task'), str) and isinstance(value.get('seed'), int)
      and isinstance(model.get('name', ''), str))


def pairs(config: dict, prefix: str = '') -> Iterator[tuple[str, Any]]:
  """Yields ('train.steps', 100) and so on; empty dicts vanish."""
  for key, value in config.items():
    if isinstance(value, dict):
      yield from pairs(value, f'{prefix}{key}.')
    else:
      yield prefix + key, value


def flatten(config: dict) -> dict:
  """Flattens a dict to {'train.steps': 100, ...}; see `pairs`."""
  return dict(pairs(config))


def with_sizes(flat: dict) -> dict:
  """Returns {field: value} with CPU sizes for 0, as of earlier versions."""
  sized = dict(flat)
  for name in ('microbatch_size', 'eval_batch_size'):
    on_cpu = sized.pop(f'train.cpu_{name}', None)
    if sized.get(f'train.{name}') == 0:
      sized[f'train.{name}'] = on_cpu
  return sized


def identity(config: dict) -> dict:
  """Returns the part of a config that identifies it, as JSON stores it."""
  config = _plain(
      {k: v for k, v in config.items() if k not in MACHINE_FIELDS})
  if isinstance(config.get('train'), dict):
    sized = with_sizes({f'train.{k}': v for k, v in config['train'].items()})
    train = config['train'] = {
        k.removeprefix('train.'): v for k, v in sized.items()}
    lengths = train.get('lengths')
    if isinstance(lengths, list) and all(
        type(length) is int for length in lengths):
      train['lengths'] = sorted(set(lengths))
  added = fields.added((config.get('model') or {}).get('name', ''))
  return _without(config, _plain(added), '')


def _without(config, added, prefix):
  kept = {}
  for key, value in config.items():
    name = prefix + key
    if isinstance(value, dict):
      value = _without(value, added, f'{name}.')
      if value or not any(f.startswith(f'{name}.') for f in added):
        kept[key] = value
    elif name not in added or value != added[name]:
      kept[key] = value
  return kept


def _plain(value):
  return json.loads(json.dumps(value),
                    parse_float=lambda text: float(text) + 0.0)


def without_paths(config: dict) -> dict:
  """Returns a config without the folders of one user, for others to read."""
  paths = ['data_dir', 'tokenizer'] + ['init_from'] * (
      not names_config(config.get('init_from', '')))
  return {**config, **{name: '' for name in paths if name in config}}


def names_config(init_from: str) -> bool:
  """Returns whether `config.init_from` names a config, not a path of a run."""
  return bool(re.match(r'\S+\.py:\S', init_from))


def experiment(config: dict) -> dict:
  """Returns the identity without FITTING_FIELDS: {dotted field: value}."""
  return {name: value for name, value in flatten(identity(config)).items()
          if name not in FITTING_FIELDS}


def repetition(config: dict) -> str:
  """Returns a text that is equal for configs with one seed of one experiment.
  """
  return json.dumps(
      [experiment(config), config['seed']], sort_keys=True)


def config_hash(config: dict) -> str:
  text = json.dumps(identity(config), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_name(config: dict) -> str:
  return f'{config_hash(config)}-s{config["seed"]}'


def run_folder(config: dict) -> pathlib.Path:
  return pathlib.Path(
      'runs', config['task'], config['model']['name'], run_name(config))


def differences(ours: dict, theirs: dict) -> list[str]:
  """Returns the sorted names of differing fields: of the identity, and seed."""
  one, other = (flatten(identity(config)) | {'seed': config.get('seed')}
                for config in (ours, theirs))
  return sorted(name for name in {*one, *other} if (name in one) != (
      name in other) or one[name] != other[name])


def varied(configs: list[dict]) -> list[str]:
  first, *others = [flatten(config) for config in configs] or [{}]
  return [name for name in first
          if any(other.get(name) != first[name] for other in others)]


def changes(config: dict, protocol: dict[str, Any]) -> dict[str, Any]:
  """Returns the fields that a config changes: {field: the protocol's value}.

  A field that the config lacks (the heads of a mixer without heads) is no
  change, and neither are FREE_FIELDS.
  """
  ours = _plain(flatten(config))
  return {name: value for name, value in sorted(_plain(protocol).items())
          if name in ours and name not in FREE_FIELDS
          and name.partition('.')[0] not in MACHINE_FIELDS
          and ours[name] != value}
