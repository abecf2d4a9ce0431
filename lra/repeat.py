"""The command line that makes a recorded run again."""

import functools
import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

import configs
from lra import config_flag, fields, identity, place
from lra import seeds as seeds_lib
from lra.errors import UserError
from lra.report.result import Result

_CONFIGS = pathlib.Path(configs.__file__).parent
# What the argument of --config says.
_SAID = ('task', 'protocol', 'model.name')
_NONE = 'No command makes it again here: '
_SEED = '--config.seed='
# A field may follow another that follows another.
_ROUNDS = 4


def command(run: Result, seeds: Sequence[int] = ()) -> str:
  """The shell command that makes the run again, as far as configs go.

  The config file of its model, and each field that this file makes otherwise,
  except where the data is. Versions of the code are not its matter.

  Args:
    run: what a record says of it.
    seeds: of one or more runs that the command makes instead, rising; the
      run's own where there are none.

  Returns:
    The command, or a sentence that begins with "No command" and says why this
    version of the code has none.
  """
  how = f'{run.task},protocol={run.protocol}'
  try:
    flags = _flags(run, f'{run.model}.py:{how}')
  except UserError as error:
    # Wherever this checkout is, a page says the same.
    return _NONE + str(error).replace(f'{_CONFIGS}/', 'configs/')
  except Exception as error:  # whatever a record's values do to a config
    return f'{_NONE}its config cannot be made ({type(error).__name__}).'
  if seeds:
    flags = [flag for flag in flags if not flag.startswith(_SEED)]
    flags.append(f'{_SEED}{seeds[0]}' if len(seeds) == 1
                 else f'--seeds={seeds_lib.text(seeds)}')
  config = f'--config={place.config_said(run.model)}:{how}'
  return shlex.join([*place.program(), config, *flags])


def _flags(run, made):
  """The flags that change what a file makes into the config of a run."""
  wanted = _wanted(run)
  # Seeds share what is made, unless a file makes other fields of its seed.
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
      return _shown(_as_flags(changes | {'seed': run.seed}))
    changes |= differ
  raise UserError(f'{sorted(differ)[0]} cannot be set.')


def _as_flags(changes):
  return tuple(f'--config.{name}={_text(value)}'
               for name, value in sorted(changes.items()))


def _shown(flags):
  """The same flags, where a reader can see all of each."""
  for flag in flags:
    if not flag.isprintable() or '  ' in flag:
      raise UserError(f'{flag.split("=")[0]!r} has a value that a command line '
                      'cannot show.')
  return flags


def _fields(run: Result) -> dict[str, Any]:
  """{dotted field: value} of its config, but for where its data was."""
  sized = identity.with_sizes(identity.flatten(run.config))
  return {name: value for name, value in sized.items() if name != 'data_dir'}


def _wanted(run):
  """What the config must be: later fields as the run had them unasked."""
  later = json.loads(json.dumps(fields.added(run.model)))
  wanted = identity.with_sizes(later | _fields(run))
  return {name: value for name, value in wanted.items() if name not in _SAID}


@functools.cache
def _follows_seed(model):
  """Whether a model's config file makes other fields of the seed."""
  try:
    one, other = (_made(f'{model}.py:listops_mini', (f'{_SEED}{seed}',))
                  for seed in (1, 2))
  except Exception:  # each run says what is wrong
    return True
  return one | {'seed': 2} != other


@functools.lru_cache(maxsize=1000)
def _made(made, flags):
  """{dotted field: value} of the config that these flags make."""
  config = config_flag.made_by([f'--config={_CONFIGS / made}', *flags])
  values = config.copy_and_resolve_references().to_dict()
  return identity.with_sizes(identity.flatten(json.loads(json.dumps(values))))


def _text(value):
  """A value as the flag of its field reads it."""
  return value if isinstance(value, str) else repr(_tuples(value))


def _tuples(value):
  """JSON's lists as the tuples that they are in configs."""
  if isinstance(value, dict):
    return {key: _tuples(inner) for key, inner in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value
