"""Code that the project's commands share: --config, error sentences, caches."""

import contextlib
import logging
import os
import pathlib
import re
import sys
import tempfile
import warnings
from typing import NamedTuple

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from lra.core import environment, machine, paths, signals
from lra.core.errors import USER_ERROR, UserError
from lra.core.terminal import say
from lra.run import loader

_HELP = {'-h', '-help', '--help', '-helpshort', '--helpshort'}
_HELP_FULL = {'-helpfull', '--helpfull'}
_LONGEST = 1000  # most characters of an error about flags
_LONGEST_PATH = 200


class Words(NamedTuple):
  """The words that must follow the flags.

  Attributes:
    flag: the flag that needs them, '' if none does.
    what: description of them.
    form: such as 'A B', or 'A A ...' for one or more.
  """
  flag: str = ''
  what: str = ''
  form: str = ''


CONFIG = loader.define()
CACHE = flags.DEFINE_string(
    'compile_cache', '~/.cache/lra/xla', 'Folder that keeps compiled programs '
    'between runs; an empty name turns this off.')


def run(command, usage=Words, summary: str = '') -> None:
  """Runs `command` with flags parsed; user errors become one sentence.

  Args:
    command: function of the words that follow the flags; returns the exit code.
    usage: called once the flags are parsed; returns the `Words` that must
      follow them.
    summary: text of --help; by default the list of flags, which --helpfull
      always prints.
  """
  quiet_libraries()
  _show_flags()
  words = set(sys.argv)
  try:
    environment.check_limits()
    try:
      if words & _HELP_FULL:
        print(sys.modules['__main__'].__doc__, flags.FLAGS.main_module_help())
      elif summary and words & _HELP:
        print(summary)
      else:
        app.run(lambda argv: sys.exit(command(*argv[1:])),
                flags_parser=lambda argv: _parse_flags(argv, usage))
    finally:
      sys.stdout.flush()  # here a full disk still gives an error
  except UserError as e:
    fail(str(e))
  except signals.Stop:
    sys.exit(signals.STOPPED)
  except Exception as e:
    what = environment.blamed(e) or _of_files(e)
    if not what:
      raise
    with contextlib.suppress(OSError):
      sys.stdout.flush()
    print(f'error: {what}', file=sys.stderr, flush=True)
    os._exit(USER_ERROR)  # a checkpoint's writer would print errors at exit


def _of_files(error):
  """Returns the sentence for a file system error; '' for any other error."""
  if machine.disk_full(error):
    return ('The disk is full, or a file exceeds the limit of ulimit -f: '
            'make room; the same command resumes from the last checkpoint.')
  if not isinstance(error, OSError) or error.filename is None:
    return ''
  path = _shortened(os.fsdecode(error.filename), _LONGEST_PATH)
  return (f'{path} cannot be used ({error.strerror}): choose another path, or '
          'correct that, then repeat the command.')


def fail(sentence: str) -> None:
  """Ends the process with one sentence and the code for user errors."""
  print(f'error: {sentence}', file=sys.stderr)
  sys.exit(USER_ERROR)


def _show_flags():
  """Makes --help list the flags of this package."""
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    if module.startswith('lra.'):
      for flag in defined:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _parse_flags(argv, usage):
  """Parses flags; an error in a config or a flag becomes one sentence."""
  _check_text(argv)
  try:
    rest = flags.FLAGS(argv)
  except SystemExit:  # --help and the like, which absl treats as a failure
    sys.exit(0)
  except UserError:
    raise
  except flags.UnrecognizedFlagError as e:
    from lra.cli import elsewhere
    text = _one_line(e)
    if text.endswith("'"):  # absl names no similar flag
      text += elsewhere.field_hint(e.flagname)
    raise UserError(elsewhere.hint(e.flagname) or text) from e
  except Exception as e:  # from absl, or from Python's parser of a value
    raise UserError(_one_line(e)) from e
  _check_paths()
  needed = usage()
  wanted = needed.form.split()
  if len(rest) > 1 and not wanted:
    raise UserError(f'Unknown argument {rest[1]!r}: flags begin with --.')
  for word in rest[1:]:
    paths.local(word)
  if wanted[-1:] == ['...'] and len(rest) > 1:
    return rest
  if len(rest) - 1 != len(wanted):
    raise UserError(
        f'--{needed.flag} needs {needed.what} after the flags '
        f'({needed.form}), but there {"is" if len(rest) == 2 else "are"} '
        f'{" ".join(rest[1:]) or "none"}.')
  return rest


def _check_paths():
  """Raises UserError if a flag has a URL in the place of a path."""
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    for flag in defined:
      if module.startswith('lra.') and isinstance(flag.value, str) and (
          flag.name != 'coordinator'):
        paths.local(flag.value, f'--{flag.name}')


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
  return _shortened(text, _LONGEST)


def _shortened(text, longest):
  half = longest // 2
  return text if len(text) <= longest else f'{text[:half]} ... {text[-half:]}'


def _check_text(argv):
  """Raises UserError for a path that is not UTF-8: libraries may refuse it."""
  named = [*argv[1:], os.environ.get('TFDS_DATA_DIR', '')]
  with contextlib.suppress(FileNotFoundError):  # the folder was removed
    named.append(os.getcwd())
  for text in named:
    try:
      text.encode()
    except UnicodeEncodeError as e:
      raise UserError(
          f'{_shortened(ascii(text), _LONGEST_PATH)} is not UTF-8: rename it, '
          'or choose another path.') from e


def experiment(folder: str | None = None):
  """Returns the experiment of --config, or None.

  Args:
    folder: the run directory, by default that of the config.

  Raises:
    UserError: the experiment cannot run; the message names the field.
  """
  if CONFIG.value is None:
    return None
  from lra.run import experiment as experiment_lib  # imports JAX
  return experiment_lib.resolve(
      CONFIG.value, folder=folder,
      made_by=config_flags.get_config_filename(flags.FLAGS['config']))


def quiet_libraries() -> None:
  """Silences the logs of libraries, whose errors are raised anyway."""
  absl_logging.set_verbosity(absl_logging.FATAL)
  logging.getLogger('jax').setLevel(logging.ERROR)
  sys.unraisablehook = _without_late_workers(sys.unraisablehook)
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  os.environ['MPLBACKEND'] = 'agg'  # figures are written to files
  machine.skip_tpu()


def _without_late_workers(hook):
  """Returns an unraisablehook that hides the effects of a failed checkpoint.

  If a write or a read fails, Orbax closes its event loop. Threads of
  tensorstore that end later call the closed loop, with one traceback each.
  Other reads are dropped, and each prints an error of two thousand characters.
  """
  def shown(unraisable):
    code = getattr(unraisable.object, 'cr_code', None)  # code of a coroutine
    dropped = code and 'orbax' in pathlib.Path(code.co_filename).parts
    if not dropped and str(unraisable.exc_value) != 'Event loop is closed':
      hook(unraisable)

  return shown


def use_compile_cache(folder: str | None = None) -> None:
  """Keeps compiled programs in `folder`, by default that of --compile_cache.

  An empty name keeps none.
  """
  import jax
  folder = CACHE.value if folder is None else folder
  if folder:
    try:
      path = pathlib.Path(folder).expanduser()
      path.mkdir(parents=True, exist_ok=True)
      with tempfile.TemporaryFile(dir=path):
        pass
    except (OSError, RuntimeError) as e:  # such as a user without a home
      say(f'Compiled programs are not kept, since {folder} cannot be written '
          f'({getattr(e, "strerror", None) or e}): choose another folder with '
          '--compile_cache.')
      return
    # If the disk fills up, programs are compiled again: this needs no warning.
    warnings.filterwarnings('ignore', '.*persistent compilation cache')
    jax.config.update('jax_compilation_cache_dir', str(path))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.5)
