"""The machine a run is made on: its checkout, versions, device and limits."""

import errno
import os
import pathlib
import platform
import resource
import subprocess
import sys
from importlib import metadata

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')


def git_state() -> dict:
  """Commit of this checkout and whether it differs from it."""
  def git(*args):
    try:
      return subprocess.run(
          ('git', *args), cwd=pathlib.Path(__file__).parent, text=True,
          capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
      return None

  # What a finished run writes itself does not count.
  changes = git('status', '--porcelain', '--untracked-files=no', '--',
                ':(top)', ':(top,exclude)leaderboard.md',
                ':(top,exclude)lra/results')
  return {'git_commit': git('rev-parse', 'HEAD'), 'git_dirty': bool(changes)}


def environment() -> dict:
  """Versions of what computes, and the host's processor."""
  return {**git_state(), 'python': platform.python_version(),
          'machine': platform.machine(), 'cpus': cpu_count(),
          'versions': {p: metadata.version(p) for p in _PACKAGES}}


def cpu_count() -> int:
  """Cores this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(
      os, 'sched_getaffinity') else os.cpu_count()


def device_name() -> str:
  """Kind of the first device; a CPU says its number of cores."""
  import jax
  device = jax.devices()[0]
  if device.platform == 'cpu':
    return f'cpu ({cpu_count()} cores)'
  return device.device_kind


def peak_memory() -> int:
  """Peak bytes in use: of the first device, or of this process on a CPU."""
  import jax
  stats = jax.local_devices()[0].memory_stats() or {}
  if 'peak_bytes_in_use' in stats:
    return stats['peak_bytes_in_use']
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def out_of_memory(error: Exception) -> bool:
  """Whether JAX reports that the device's memory is full."""
  return 'RESOURCE_EXHAUSTED' in str(error) and not disk_full(error)


def disk_full(error: BaseException) -> bool:
  """Whether an error of the file system or of Orbax is about a full disk."""
  return getattr(error, 'errno', None) in (errno.ENOSPC, errno.EDQUOT) or (
      'No space left' in str(error))
