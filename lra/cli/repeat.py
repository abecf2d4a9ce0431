"""Finds the command line that repeats a recorded run."""

import functools
import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from lra import configs
from lra.core import paths
from lra.core.errors import UserError
from lra.run import loader
from lra.schema import fields, identity
from lra.schema import seeds as seeds_lib
from lra.schema.result import Result

_CONFIGS = pathlib.Path(configs.__file__).resolve().parent
# Fields that the argument of --config sets.
_SAID = ('task', 'protocol', 'model.name')
_NONE = 'No command makes it again here: '
_SEED = '--config.seed='
# Rounds of setting fields: setting one may change fields derived from it.
_ROUNDS = 4


def command(run: Result, seeds: Sequence[int] = ()) -> str:
  """Returns the shell command that makes a run of the same config again.

  The command names the model's config file, and each field that differs from
  this file except the data folder. It does not name a version of the code. With
  `seeds`, rising ones, it makes these runs instead. If this version of the code
  has no command, a sentence that begins with "No command" gives the reason.
  """
  how = f'{run.task},protocol={run.protocol}'
  try:
    flags = _flags(run, f'{run.model}.py:{how}')
  except UserError as error:
    # A page must not depend on the folder of the checkout.
    return _NONE + str(error).replace(f'{_CONFIGS}/', 'configs/')
  except Exception as error:  # whatever a record's values may raise
    return f'{_NONE}its config cannot be made ({type(error).__name__}).'
  if seeds:
    flags = [flag for flag in flags if not flag.startswith(_SEED)]
    flags.append(f'{_SEED}{seeds[0]}' if len(seeds) == 1
                 else f'--seeds={seeds_lib.text(seeds)}')
  config = f'--config={paths.config_said(run.model)}:{how}'
  return shlex.join([*paths.program(), config, *flags])


def _flags(run, made):
  """Returns the flags that turn the config of a file into that of the run."""
  wanted = _wanted(run)
  if run.config.get('init_source') and not (
      wanted['init_from'] or wanted['pretrain.objective']):
    raise UserError('it starts from parameters whose folder is not recorded, '
                    f'{run.config["init_source"]}.')
  if run.config.get('tokenizer_source'):
    raise UserError('the folder of its tokenizer is not recorded, whose hash '
                    f'is {run.config["tokenizer_source"]}.')
  # Seeds share the cached config, unless a file derives fields from the seed.
  changes = {'seed': run.seed} if _follows_seed(run.model) else {}
  for _ in range(_ROUNDS):
    ours = _made(made, _as_flags(changes)) | {'seed': run.seed}
    missing = sorted(name for name in set(_fields(run)) - set(ours)
                     if name not in _SAID)
    if missing:
      raise UserError(f'this version has no field {missing[0]}.')
    differ = {name: value for name, value in wanted.items()
              if name in ours and ours[name] != value}
    if not differ:
      flags = _as_flags(changes | {'seed': run.seed})
      for flag in flags:
        if not flag.isprintable() or '  ' in flag:
          raise UserError(f'{flag.split("=")[0]!r} has a value that a command '
                          'line cannot show.')
      return flags
    changes |= differ
  raise UserError(f'{sorted(differ)[0]} cannot be set.')


def _as_flags(changes):
  """Returns flags with the values of fields, as their fields can parse them."""
  return tuple(
      f'--config.{name}={value if isinstance(value, str) else repr(value)}'
      for name, value in sorted(_tuples(changes).items()))


def _tuples(value):
  """Turns JSON's lists into the tuples that they are in configs."""
  if isinstance(value, dict):
    return {key: _tuples(inner) for key, inner in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _fields(run: Result) -> dict[str, Any]:
  """Returns {dotted field: value} of its config, without those of one user.

  The program sets `init_source` and `tokenizer_source` itself.
  """
  sized = identity.with_sizes(identity.flatten(run.config))
  return {name: value for name, value in sized.items()
          if name not in ('data_dir', 'init_source', 'tokenizer_source')}


def _wanted(run):
  """Returns {dotted field: value} that the config must have.

  Fields that were added after the run get the value that describes it.
  """
  later = json.loads(json.dumps(fields.added(run.model)))
  wanted = identity.with_sizes(later | _fields(run))
  return {name: value for name, value in wanted.items() if name not in _SAID}


@functools.cache
def _follows_seed(model):
  """Returns whether a model's config file derives fields from the seed."""
  try:
    one, other = (_made(f'{model}.py:listops_mini', (f'{_SEED}{seed}',))
                  for seed in (1, 2))
  except Exception:  # each run will report the error
    return True
  return one | {'seed': 2} != other


@functools.lru_cache(maxsize=1000)
def _made(made, flags):
  """Returns {dotted field: value} of the config that these flags make."""
  config = loader.made_by([f'--config={_CONFIGS / made}', *flags])
  values = config.copy_and_resolve_references().to_dict()
  return identity.with_sizes(identity.flatten(json.loads(json.dumps(values))))
