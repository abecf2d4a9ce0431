"""The flag --config: a file, a task and changes of fields make a config."""

import functools
import pathlib
import re
import sys
import types

from absl import flags
from ml_collections import ConfigDict, config_flags

from lra.core import files, paths, signals
from lra.core.errors import UserError, explained, meant
from lra.core.formats import shortened
from lra.run import check
from lra.schema import identity
from lra.schema.fields import FIELDS, Tuple
from lra.schema.synonyms import beside, likeliest

_FORM = ('--config has the form configs/<model>.py:<task>, and `list` shows '
         'the models and tasks')


def define(values: flags.FlagValues = flags.FLAGS,
           argv: list[str] | None = None) -> flags.FlagHolder:
  """Defines --config, a locked config that `argv` (by default ours) changes."""
  holder = config_flags.DEFINE_config_file(
      'config', None, 'Train configs/<model>.py:<task>[,protocol=<name>]. '
      'Change a field like this: --config.train.steps=100.', lock_config=True,
      flag_values=values, sys_argv=argv)
  values['config'].parser = _Parser(argv)
  return holder


def made_by(arguments: list[str]) -> ConfigDict:
  """Returns the config of arguments --config and --config.*, with references.
  """
  argv, values = ['config', *arguments], flags.FlagValues()
  holder = define(values, argv)
  try:
    values(argv)
  except UserError:
    raise
  except Exception as e:  # from absl, or from Python's parser of a value
    raise UserError(one_line(e)) from e
  return holder.value


def one_line(error: Exception) -> str:
  """Returns an error about flags without line breaks, shortened if it is long.
  """
  text = ' '.join(str(error.args[0] if error.args else '').split())
  if not isinstance(error, flags.Error):
    text = f'the flags cannot be read ({type(error).__name__}: {text})'
  text = re.sub(r"\('(.*)', ('.*')\)$", r'\1 \2', text)  # absl, for a bool
  text = re.sub(r"invalid literal for int\(\) with base 10: ('.*')$",
                r'\1 is not a whole number', text)
  text = re.sub(r"could not convert string to float: ('.*')$",
                r'\1 is not a number', text)
  return shortened(text)


class _Parser(flags.ArgumentParser):
  """Makes the config of `<file>:<argument>`."""

  def __init__(self, argv):
    super().__init__()
    self._argv = argv

  def parse(self, path):
    """Returns the config; UserError for any error in the file or a change."""
    path, *argument = paths.config_parts(paths.local(path, '--config'))
    path = path and str(paths.config_file(path))
    try:
      config = _get_config(path)(*argument)
      if isinstance(config, ConfigDict):
        config.lock()  # computes the derived fields
    except (UserError, signals.Stop):
      raise
    except (Exception, SystemExit, KeyboardInterrupt) as e:
      # A user's file may raise anything.
      if isinstance(e, KeyboardInterrupt) and not signals.listening():
        raise
      raise UserError(explained(path, e)) from e
    if not isinstance(config, ConfigDict):
      raise UserError(
          f'{path}: get_config returns {type(config).__name__} instead of a '
          'config: begin with get_config of configs/base.py and return it.')
    values = check.plain(config)
    if name := check.missing(values):
      raise UserError(f'{path}: get_config leaves out config.{name}: begin '
                      'with get_config of configs/base.py.')
    names = [*identity.flatten(values)]
    for argument in sys.argv if self._argv is None else self._argv:
      found = re.match(r'--?(?:no)?config\.([^=]*)=?(.*)', argument, re.DOTALL)
      if found:
        _check_change(*found.groups(), names)
    return config

  def flag_type(self):
    return 'config'


def _get_config(path):
  """Returns the function of a config file; writes nothing beside it."""
  if not path:
    raise UserError(f'--config= names no file: {_FORM}.')
  try:
    code = files.read(path)
  except OSError as e:
    known = [p.stem for p in (paths.PACKAGE / 'configs').glob('*.py')]
    close = meant(pathlib.Path(path).stem, sorted(known))
    raise UserError(
        f'{path} cannot be read ({e.strerror}): ' + (
            f'did you mean {paths.config_said(close)}?' if close else
            f'{_FORM}.')) from e
  module = types.ModuleType('config_file')
  module.__file__ = path
  sys.modules[module.__name__] = module
  exec(_compiled(code, path), module.__dict__)
  if not callable(getattr(module, 'get_config', None)):
    raise UserError(f'{path} has no function get_config: {_FORM}.')
  return module.get_config


# Cached, because a page makes hundreds of configs from the same files.
_compiled = functools.lru_cache(maxsize=100)(
    functools.partial(compile, mode='exec'))


def _check_change(name, value, names):
  if name == 'protocol':
    raise UserError(
        f'--config.protocol={value!r} would change the name of the protocol '
        'but none of its settings: choose one after the task, as in '
        '--config=configs/<model>.py:<task>,protocol=nystrom.')
  info = FIELDS.get(name)
  if info and info.annotation == Tuple and value.startswith('{'):
    raise UserError(f'--config.{name}={value} is not possible: write a tuple, '
                    'such as (1, 2).')
  if name in names or any(n.startswith(f'{name}.') for n in names):
    return
  close = likeliest(name, names)
  hint = (f'did you mean config.{close}?' if close else
          f'there are {", ".join(sorted(beside(name, names) or names))}.')
  raise UserError(f'--config.{name} changes no field of the config: {hint}')

