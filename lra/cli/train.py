"""Trains one run: the flags that follow `run_lra.py` without a word."""

import re
import sys
import textwrap
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from lra.cli import arguments, command, options
from lra.core import environment, paths
from lra.core.errors import UserError
from lra.run import describe, loader
from lra.schema.fields import FIELDS


def names() -> set[str]:
  """Returns the names of the flags of training."""
  return {*options.COMMANDS, *(
      name for taken in options.COMMANDS.values() for name in taken)}


def summary() -> str:
  """Returns the flags of training, with their meaning."""
  program = ' '.join(paths.program())
  lines = [f'usage: {program} --config=FILE:TASK FLAGS']
  for name in ('config', *sorted(names() - {'config'})):
    text = ' '.join(f'--{name}: {flags.FLAGS[name].help}'.split())
    lines.append(textwrap.fill(
        text, 80, initial_indent='  ', subsequent_indent='      '))
  return '\n'.join(lines)


def parse(argv: Sequence[str]) -> None:
  """Parses the flags of training.

  Args:
    argv: the arguments of the process, without the program's name.

  Raises:
    UserError: a flag or the config is wrong.
  """
  try:
    rest = flags.FLAGS([sys.argv[0], *argv])
  except UserError:
    raise
  except flags.UnrecognizedFlagError as e:
    text = _one_line(e)
    if text.endswith("'"):  # absl names no similar flag
      field = loader.likeliest(e.flagname, FIELDS)
      text += field and f': the field is --config.{field}.'
    raise UserError(arguments.elsewhere(e.flagname, 'train') or text) from e
  except Exception as e:  # from absl, or from Python's parser of a value
    raise UserError(_one_line(e)) from e
  for name in names():
    value = flags.FLAGS[name].value
    if isinstance(value, str) and name != 'coordinator':
      paths.local(value, f'--{name}')
  if len(rest) > 1:
    raise UserError(f'Unknown argument {rest[1]!r}: flags begin with --.')
  options.check()


def _one_line(error):
  """Returns the text of an error without line breaks, shortened if it is long.
  """
  text = ' '.join(str(error.args[0] if error.args else '').split())
  if not isinstance(error, flags.Error):
    text = f'the flags cannot be read ({type(error).__name__}: {text})'
  text = re.sub(r"\('(.*)', ('.*')\)$", r'\1 \2', text)  # absl, for a bool
  text = re.sub(r"invalid literal for int\(\) with base 10: ('.*')$",
                r'\1 is not a whole number', text)
  text = re.sub(r"could not convert string to float: ('.*')$",
                r'\1 is not a number', text)
  return command.shortened(text)


def main(argv: Sequence[str]) -> int:
  """Trains --config; returns the exit code."""
  parse(argv)
  if options.SWEEP.value:
    from lra.cli import launch_sweep
    return launch_sweep.run()
  if options.SUITE.value:
    from lra.cli import launch_suite
    return launch_suite.run()
  if options.DISTRIBUTED.value:
    from lra.core import distributed
    distributed.begin(options.COORDINATOR.value, options.NUM_PROCESSES.value,
                      options.PROCESS_ID.value)
    return distributed.ending(_train)
  return _train()


def _train():
  chosen = _experiment()
  if options.PRINT_CONFIG.value:
    print(describe.text(chosen.config))
    return 0
  environment.check_xla_flags()
  command.use_compile_cache(command.CACHE.value)
  if options.COMPILE_ONLY.value:
    from lra.many import ahead
    ahead.compile_steps(chosen)
    return 0
  if options.TRIAL.value:
    from lra.cli import launch_trial
    return launch_trial.run(chosen)
  if options.SEARCH.value:
    from lra.cli import launch_search
    return launch_search.run(chosen)
  from lra.cli import launch
  return launch.train(chosen)


def _experiment():
  """Returns the experiment of --config.

  Raises:
    UserError: the experiment cannot run; the message names the field.
  """
  if command.CONFIG.value is None:
    raise UserError('Nothing to do: give --config=configs/<model>.py:<task>, '
                    'or a word; --help lists both.')
  from lra.run import experiment  # imports JAX
  return experiment.resolve(
      command.CONFIG.value, folder=options.WORKDIR.value,
      made_by=config_flags.get_config_filename(flags.FLAGS['config']))
