"""Code that the commands share: --config, error sentences, a compile cache."""

import contextlib
import logging
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable

from absl import flags
from absl import logging as absl_logging

from lra.core import environment, machine, signals
from lra.core.errors import USER_ERROR, UserError
from lra.core.formats import escaped, shortened
from lra.core.terminal import say
from lra.run import loader

_LONGEST = 1000  # most characters of an error
_LONGEST_PATH = 200

CONFIG = loader.define()
CACHE = flags.DEFINE_string(
    'compile_cache', '~/.cache/lra/xla', 'Folder that keeps compiled programs '
    'between runs; an empty name turns this off.')


def run(function: Callable[[], int]) -> None:
  """Ends the process with the exit code that a function returns.

  A user error becomes one sentence.
  """
  quiet_libraries()
  try:
    _check_text()
    try:
      code = function()
    finally:
      sys.stdout.flush()  # here a full disk still gives an error
  except UserError as e:
    print(f'error: {shortened(escaped(str(e)), _LONGEST)}', file=sys.stderr)
    code = USER_ERROR
  except signals.Stop:
    code = signals.STOPPED
  except Exception as e:
    what = environment.blamed(e) or _of_files(e)
    if not what:
      raise
    with contextlib.suppress(OSError):
      sys.stdout.flush()
    print(f'error: {escaped(what)}', file=sys.stderr, flush=True)
    os._exit(USER_ERROR)  # a checkpoint's writer would print errors at exit
  sys.exit(code)


def _of_files(error):
  """Returns the sentence for a file system error; '' for any other error."""
  if machine.disk_full(error):
    return ('The disk is full, or a file exceeds the limit of ulimit -f: '
            'make room; the same command resumes from the last checkpoint.')
  if not isinstance(error, OSError) or error.filename is None:
    return ''
  path = shortened(os.fsdecode(error.filename), _LONGEST_PATH)
  return (f'{path} cannot be used ({error.strerror}): choose another path, or '
          'correct that, then repeat the command.')


def _check_text():
  """Raises UserError for a path that is not UTF-8, or of another locale.

  Libraries read the bytes of a path as UTF-8.
  """
  named = [*sys.argv[1:], os.environ.get('TFDS_DATA_DIR', '')]
  with contextlib.suppress(FileNotFoundError):  # the folder was removed
    named.append(os.getcwd())
  for text in named:
    said, coding = (shortened(ascii(text), _LONGEST_PATH),
                    sys.getfilesystemencoding())
    try:
      os.fsencode(text).decode()
    except UnicodeError as e:
      raise UserError(
          f'{said} is not UTF-8: rename it, or choose another path.') from e
    if coding != 'utf-8' and not text.isascii():
      raise UserError(f'{said} is UTF-8, but the locale is {coding}: set '
                      'LC_ALL=C.UTF-8, then repeat the command.')


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


def use_compile_cache(folder: str) -> None:
  """Keeps compiled programs in `folder`; an empty name keeps none."""
  import jax
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
