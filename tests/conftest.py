"""Four CPU devices for everyone, one small prepared data set, `--full`."""

import collections
import gc
import itertools
import os
import pathlib
import signal

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')

import jax
import pytest

jax.config.update('jax_num_cpu_devices', 4)
# Tracing makes objects by the million, of which few are garbage: it is looked
# for seldom.
gc.set_threshold(100_000, 20, 10)
# A shell's jobs in the background ignore Ctrl-C, and so would their children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Later versions have one emitter only and refuse the flag.
_EMITTERS = ('--xla_cpu_use_fusion_emitters=false'
             if jax.__version_info__ < (0, 11) else '')


def pytest_addoption(parser):
  parser.addoption(
      '--full', action='store_true',
      help='also the exhaustive tests: every model on every task, programs '
      'for hardware that is not here, growth of memory, kills')
  parser.addoption(
      '--optimised', action='store_true',
      help='programs compiled for speed, as users have them')
  parser.addoption(
      '--part', metavar='I/N', type=_part, default=(0, 1),
      help='with --full, the Ith of N parts of the exhaustive tests')


def _part(text):
  """'I/N' -> (I mod N, N)."""
  i, n = map(int, text.split('/'))
  return i % n, n


def pytest_configure(config):
  """Most of the time goes into compiling: less optimising takes half of it.

  `--optimised` compiles as users do. XLA reads the variable once; processes
  that tests start inherit it, but for what libtpu, another XLA, would refuse.
  """
  quick = ('--xla_backend_optimization_level=0 '
           '--xla_cpu_parallel_codegen_split_count=1')
  # The workers of xdist have inherited it.
  if config.getoption('--optimised') or (
      os.environ.get('XLA_FLAGS', quick) != quick):
    return
  os.environ['XLA_FLAGS'] = f'{quick} {_EMITTERS}'
  jax.block_until_ready(jax.jit(lambda x: x + 1)(0))
  os.environ['XLA_FLAGS'] = quick


def _parts_of(items, parts):
  """Part of each exhaustive test: parts share the cases of long files.

  The others stay together, as what a file prepares would be made again.
  """
  full = [item for item in items if item.get_closest_marker('full')]
  sizes = collections.Counter(item.path for item in full)
  short = sorted(path for path, size in sizes.items() if size < 2 * parts)
  case = itertools.count()
  return {item: (short.index(item.path) if item.path in short
                 else next(case)) % parts for item in full}


def _mark_all_but_every_nth(items):
  """Marks cases of tests marked `every` as `full`, in the order of cases."""
  seen = collections.Counter()
  for item in items:
    every = item.get_closest_marker('every')
    if every and not item.get_closest_marker('full'):
      test = item.nodeid.partition('[')[0]
      n, start = (*every.args, 0)[:2]
      if (seen[test] - start) % n:
        item.add_marker(pytest.mark.full)
      seen[test] += 1


def pytest_collection_modifyitems(config, items):
  """Leaves tests marked `full` out, unless they are asked for by --full.

  The longest, which kill, come first: at the end all processors would wait.
  """
  _mark_all_but_every_nth(items)
  if config.getoption('--full'):
    part, parts = config.getoption('--part')
    if parts > 1:  # the others run without --full
      part_of = _parts_of(items, parts)
      items[:] = [item for item in items if part_of.get(item) == part]
    items.sort(key=lambda item: 'kill' not in item.name)
    return
  full = [item for item in items if item.get_closest_marker('full')]
  config.hook.pytest_deselected(items=full)
  items[:] = [item for item in items if not item.get_closest_marker('full')]


def pytest_collection_finish():
  """What was imported stays: no collection looks at it again."""
  gc.collect()
  gc.freeze()


def pytest_terminal_summary(terminalreporter):
  """How many cases of the kernels ran, file by file, and how many could not."""
  counts = {}
  for outcome in ('passed', 'failed', 'skipped'):
    for report in terminalreporter.stats.get(outcome, ()):
      path, _, rest = report.nodeid.partition('::')
      if path.startswith('tests/kernels/') and rest:
        name = pathlib.PurePath(path).stem.removeprefix('test_')
        executed, total = counts.get(name, (0, 0))
        counts[name] = executed + (outcome != 'skipped'), total + 1
  if counts:
    executed, total = map(sum, zip(*counts.values(), strict=True))
    terminalreporter.write_line(
        f'kernel cases executed: {executed} of {total} ('
        + ', '.join(f'{name} {n} of {m}' if n < m else f'{name} {n}'
                    for name, (n, m) in sorted(counts.items())) + ')')


@pytest.fixture(scope='module')
def compile_once(tmp_path_factory):
  """What a file's tests compile is kept for all files and workers that ask."""
  from lra.cli import command
  folder = tmp_path_factory.getbasetemp()
  if 'PYTEST_XDIST_WORKER' in os.environ:
    folder = folder.parent
  command.use_compile_cache(folder / 'xla')
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  yield
  jax.config.update('jax_compilation_cache_dir', None)


def _resident():
  """Bytes of memory that this process holds, 0 if Linux does not say."""
  try:
    pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  except OSError:
    return 0
  return int(pages) * os.sysconf('SC_PAGE_SIZE')


@pytest.fixture(scope='module', autouse=True)
def forget_programs():
  """JAX keeps all it has traced and compiled, which no other file needs."""
  yield
  if _resident() > 1.2e9:
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def no_protocols(monkeypatch):
  """Records that were made up are not held against what protocols say."""
  from lra.records import store
  monkeypatch.setattr(store, 'protocol_settings', lambda *_: {})


@pytest.fixture(scope='session')
def mini_data(tmp_path_factory) -> pathlib.Path:
  """A data directory with `listops_mini` prepared."""
  import data_prep
  folder = tmp_path_factory.mktemp('data')
  data_prep.prepare('listops_mini', folder)
  return folder
