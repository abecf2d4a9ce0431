"""Environment variables, limits of the shell, and the allocator of memory.

Variables and limits that make libraries fail are checked. An error is one
sentence that names the variable; without the check, the library raises a
traceback or ends the process.
"""

import contextlib
import ctypes
import os
import re
import resource
import subprocess
import sys
import traceback

from lra.core.errors import UserError

_FILES = 64  # fewest open files to allow: a run has about 20, more at its start
_ADDRESSES = 2**32  # least address space, in bytes: 3e9 is enough, 2e9 is not
_WHY = 300  # most letters of a library's reason in a message
# Variables that choose the devices with which JAX starts.
_DEVICES = ('JAX_NUM_CPU_DEVICES', 'XLA_FLAGS', 'JAX_PLATFORMS')
# Options of mallopt(3): M_ARENA_MAX, M_MMAP_MAX, M_TOP_PAD, M_TRIM_THRESHOLD.
_MALLOC = {-8: 1, -4: 0, -2: 2**28, -1: 2**31 - 1}
_XLA = 'from jaxlib import xla_client; xla_client.make_cpu_client()'


def check_limits() -> None:
  """Raises the limit of open files if it is too low for a run.

  Raises:
    UserError: that limit cannot be raised, or libraries have too little address
      space, with which they hang or end the process.
  """
  space, _ = resource.getrlimit(resource.RLIMIT_AS)
  if 0 <= space < _ADDRESSES:
    raise UserError(
        f'The limit of memory is {space // 1024:,} KiB, and a run needs '
        f'{_ADDRESSES // 1024:,}: raise it, such as ulimit -v unlimited.')
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if not 0 <= soft < _FILES:
    return
  if 0 <= hard < _FILES:
    raise UserError(
        f'Only {hard} files may be open at once, fewer than a run needs: allow '
        'more, such as ulimit -n 1024.')
  resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))


def keep_freed_memory() -> None:
  """Lets glibc keep what is freed, which makes large steps on a CPU faster.

  XLA allocates the memory of a step anew each time. By default glibc returns
  large blocks to the kernel, which fills them with zeros again.
  """
  with contextlib.suppress(AttributeError, OSError):  # another C library
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in _MALLOC.items():
      mallopt(option, value)


def check_xla_flags() -> None:
  """Tries XLA_FLAGS in another process, which XLA ends if they are wrong."""
  if not os.environ.get('XLA_FLAGS', '').strip():
    return
  done = subprocess.run(
      [sys.executable, '-c', _XLA], stdin=subprocess.DEVNULL, text=True,
      capture_output=True, check=False, errors='replace')
  if not done.returncode:
    return
  # A line of XLA's log begins with its level, the time and the place.
  found = re.search(r'^[EF][^\n]*?\d\] (.*)', done.stderr, re.MULTILINE)
  lines = done.stderr.strip().splitlines() or ['it gives no reason']
  raise _refused('XLA_FLAGS', found[1] if found else lines[-1])


def blamed(error: BaseException) -> str:
  """Returns the sentence about the variable or limit behind an error, or ''."""
  if isinstance(error, MemoryError):
    why = ' '.join(str(error).split())[:_WHY].rstrip('.')
    return (f'The memory is too small{why and f" ({why})"}: use a machine with '
            'more.')
  files = [frame.filename.replace(os.sep, '/')
           for frame in traceback.extract_tb(error.__traceback__)]
  text = str(error)
  if any(f.endswith(('jax/_src/config.py', 'flax/configurations.py'))
         for f in files):
    said = text.lower().replace('.', '_')
    for name in os.environ:
      if name.startswith(('JAX_', 'FLAX_')) and name.lower() in said:
        return str(_refused(name, text))
  if files and files[-1].endswith('jax/_src/xla_bridge.py'):
    names = [name for name in _DEVICES if os.environ.get(name)]
    if os.environ.get('JAX_PLATFORMS', 'cpu') != 'cpu':  # a CPU always exists
      names = names[-1:]
    if names:
      return str(_refused(
          names[0], text or 'no such device is here, or its plugin is missing'))
  return ''


def _refused(name, why):
  value, why = os.environ[name], ' '.join(why.split())
  return UserError(
      f'{name}={value[:_WHY]} cannot be used ({why[:_WHY].rstrip(".")}): '
      'correct the variable, or unset it.')
