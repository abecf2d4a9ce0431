"""The machine of a run: its checkout, versions, device and limits."""

import contextlib
import errno
import importlib.util
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')
_FLAG = 1000  # most characters of a flag, as in a record
# Settings of JAX that name places and do not change results.
_PLACES = re.compile(
    'platform|device|backend|cache|dump|log|traceback|address|socket|mtls|url')
# Folders of a checkout from which Python is imported.
_SOURCES = ('lra', 'configs', 'kernels', 'data_prep')
# Names of the branch that others can check out; the first that exists counts.
_PUBLISHED = ('refs/remotes/origin/HEAD', 'refs/remotes/origin/main',
              'refs/heads/main')
# Files that finished runs write.
_WRITTEN = ('leaderboard.md', 'docs/leaderboard', 'lra/results')


def git_state(files: Iterable[pathlib.Path] = ()) -> dict:
  """Returns the commit of this checkout, and whether the code differs from it.

  `git_dirty` is true if a file of the commit was modified, Python was added to
  its packages, or one of `files` is not in the commit. `git_published` is
  whether the commit is on the published branch, None if there is none. All are
  None if this folder is not the top of a checkout, or belongs to another user.
  """
  tracked = lambda path: _git('ls-files', '--error-unmatch', '--', str(path))
  if tracked(__file__) is None:
    return dict.fromkeys(('git_commit', 'git_dirty', 'git_published'))
  modified = _git('status', '--porcelain', '--untracked-files=no', '--',
                  ':(top)', *(f':(top,exclude){name}' for name in _WRITTEN))
  added = _git('ls-files', '--others', '--exclude-standard', '--',
               *(f':(top,glob){name}/**/*.py' for name in _SOURCES),
               ':(top,exclude)configs/tasks')  # own tasks are in `files`
  foreign = any(tracked(path.resolve()) is None for path in files)
  head = _git('rev-parse', 'HEAD')
  return {'git_commit': head,
          'git_dirty': modified != '' or added != '' or foreign,
          'git_published': published(head)}


def published(commit: str) -> bool | None:
  """Returns whether the published branch has a commit, None if unknown."""
  branches = [name for name in _PUBLISHED
              if _git('rev-parse', '--verify', '--quiet', name)]
  if not (branches and is_commit(commit)):
    return None
  missing = _git('rev-list', '--max-count=1', commit, '--not', branches[0])
  if missing and _git('rev-parse', '--is-shallow-repository') == 'true':
    return None  # a shallow clone lacks the ancestors of the branch
  return None if missing is None else not missing


def is_commit(commit: str) -> bool:
  """Returns whether this checkout has a commit of 40 hexadecimal digits."""
  return bool(re.fullmatch('[0-9a-f]{40}', commit)) and _git(
      'cat-file', '-t', commit) == 'commit'


def file_at(commit: str, path: str) -> bytes | None:
  return _git_bytes('cat-file', 'blob', f'{commit}:{path}') if is_commit(
      commit) else None


def _git(*args):
  found = _git_bytes(*args)
  return None if found is None else found.decode(errors='replace').strip()


def _git_bytes(*args):
  """Returns git's output for this package's checkout, None if git fails.

  The package may lie in a folder of another repository, which does not count.
  """
  # The environment may name another repository, as GIT_DIR does for hooks.
  env = {k: v for k, v in os.environ.items() if not k.startswith('GIT_')}
  file = pathlib.Path(__file__).resolve()
  top, trusted = file.parents[2], ()
  try:
    # Our files may have another owner, as in a container.
    if (top / '.git').lstat().st_uid == file.stat().st_uid:
      trusted = ('-c', f'safe.directory={top}')
    return subprocess.run(
        ('git', '--no-optional-locks', *trusted, *args), cwd=top, check=True,
        capture_output=True,
        env={**env, 'GIT_CEILING_DIRECTORIES': str(top.parent)}).stdout
  except (OSError, subprocess.CalledProcessError):
    return None


def environment() -> dict:
  return {**git_state(), 'python': platform.python_version(),
          'machine': platform.machine(), 'cpus': cpu_count(),
          'versions': {p: metadata.version(p) for p in _PACKAGES}}


def xla_flags() -> list[str]:
  """Returns flags and settings on which a result's last digits may depend.

  They are the flags of XLA_FLAGS without the number of CPU devices, then JAX
  settings that the environment changes, and the matmul precision if it is set,
  as VARIABLE=value. Settings that every run sets itself and paths are left out.
  """
  import jax

  from lra.core import jax_settings
  flags = [shown_flag(flag) for flag in os.environ.get('XLA_FLAGS', '').split()
           if '_host_platform_device_count' not in flag]
  for name, value in sorted(jax.config.values.items()):
    changed = name.upper() in os.environ or (
        name == 'jax_default_matmul_precision' and value is not None)
    if changed and name not in jax_settings.NAMES and not _PLACES.search(name):
      flags.append(f'{name.upper()}={getattr(value, "value", value)}')
  return [flag[:_FLAG] for flag in flags]


def shown_flag(flag: str) -> str:
  """Returns a flag of XLA_FLAGS without a path, which could name a user."""
  name, _, value = flag.partition('=')
  if not name.startswith('-'):
    return 'XLA_FLAGS'
  return name if re.search(r'[/\\~]', value) else flag


def cpu_count() -> int:
  return len(os.sched_getaffinity(0)) if hasattr(
      os, 'sched_getaffinity') else os.cpu_count()


def cpu_times() -> tuple[float, float]:
  """Returns the seconds that our threads ran, and waited for a CPU, or zeros.
  """
  times = [(0, 0)]
  for path in pathlib.Path('/proc/self/task').glob('*/schedstat'):
    with contextlib.suppress(OSError):  # the thread may have ended
      times.append(tuple(map(int, path.read_text().split()[:2])))
  ran, waited = map(sum, zip(*times, strict=True))
  return ran / 1e9, waited / 1e9


def memory() -> int:
  """Returns the bytes of memory that this process may use, as far as known."""
  limits = [os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')]
  for name in ('memory.max', 'memory/memory.limit_in_bytes'):  # of a container
    try:
      limits.append(int(pathlib.Path('/sys/fs/cgroup', name).read_text()))
    except (OSError, ValueError):  # no such file, or its content is "max"
      continue
  return min(limits)


def skip_tpu() -> None:
  """Stops JAX from looking for a TPU if only libtpu, not the TPU, is here."""
  find, devices = importlib.util.find_spec, pathlib.Path('/dev')
  accelerators = find('jax_plugins') or any(devices.glob('accel*')) or any(
      devices.glob('vfio/*'))
  if find('libtpu') and not accelerators and 'jax' not in sys.modules:
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')


def device_name() -> str:
  """Returns the kind of the first device; for a CPU with its number of cores.
  """
  import jax
  device = jax.devices()[0]
  return cpu_name() if device.platform == 'cpu' else device.device_kind


def cpu_name() -> str:
  cores = cpu_count()
  return f'cpu ({cores} core{"s" * (cores > 1)})'


def accelerator(root: pathlib.Path = pathlib.Path('/')) -> str:
  """Returns the accelerator that JAX will use, as in records, without JAX."""
  find, devices = importlib.util.find_spec, root / 'dev'
  if os.environ.get('JAX_PLATFORMS', '').split(',')[0] == 'cpu':
    return ''
  if find('jax_plugins') and any(devices.glob('nvidia[0-9]*')):
    return _nvidia(root) or 'NVIDIA GPU'
  tpus = any(devices.glob('accel[0-9]*')) or any(devices.glob('vfio/[0-9]*'))
  return 'TPU' if find('libtpu') and tpus else ''


def _nvidia(root):
  for path in sorted(root.glob('proc/driver/nvidia/gpus/*/information')):
    for line in path.read_text(errors='replace').splitlines():
      if line.startswith('Model:'):
        return line.partition(':')[2].strip()
  try:
    return subprocess.run(
        ('nvidia-smi', '--query-gpu=name', '--format=csv,noheader'), text=True,
        capture_output=True, check=True, timeout=20).stdout.split('\n')[0]
  except (OSError, subprocess.SubprocessError):
    return ''


def peak_memory() -> int:
  import jax
  stats = jax.local_devices()[0].memory_stats() or {}
  if 'peak_bytes_in_use' in stats:
    return stats['peak_bytes_in_use']
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def out_of_memory(error: Exception) -> bool:
  return 'RESOURCE_EXHAUSTED' in str(error) and not disk_full(error)


def disk_full(error: BaseException) -> bool:
  return getattr(error, 'errno', None) in (
      errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or any(
          words in str(error) for words in ('No space left', 'File too large'))
