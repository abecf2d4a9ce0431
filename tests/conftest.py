"""Sets four CPU devices, a small prepared data set and options of the tests."""

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
# Tracing makes millions of objects but little garbage, so collect seldom.
gc.set_threshold(100_000, 20, 10)
# A shell's background jobs ignore SIGINT, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# From 0.11 on, JAX has one emitter only and refuses the flag.
_EMITTERS = ('--xla_cpu_use_fusion_emitters=false'
             if jax.__version_info__ < (0, 11) else '')


def pytest_addoption(parser):
  parser.addoption(
      '--full', action='store_true',
      help='also run the exhaustive tests: every model on every task, programs '
      'for absent hardware, growth of memory, kills')
  parser.addoption(
      '--optimised', action='store_true',
      help='compile programs with all optimisations, as for users')
  parser.addoption(
      '--part', metavar='I/N', type=_part, default=(0, 1),
      help='with --full, run the Ith of N parts of the exhaustive tests')


def _part(text):
  """Parses 'I/N' into (I mod N, N)."""
  i, n = map(int, text.split('/'))
  return i % n, n


def pytest_configure(config):
  """Lets XLA optimise less, which halves the time of compiling.

  `--optimised` compiles as for users. XLA reads XLA_FLAGS once, at its first
  compilation. Processes that tests start inherit the variable, without the
  emitters' flag: libtpu, which has its own XLA, would refuse it.
  """
  quick = ('--xla_backend_optimization_level=0 '
           '--xla_cpu_parallel_codegen_split_count=1')
  # Workers of xdist have inherited the value `quick`.
  if config.getoption('--optimised') or (
      os.environ.get('XLA_FLAGS', quick) != quick):
    return
  os.environ['XLA_FLAGS'] = f'{quick} {_EMITTERS}'
  jax.block_until_ready(jax.jit(lambda x: x + 1)(0))
  os.environ['XLA_FLAGS'] = quick


def _parts_of(items, parts):
  """Returns test -> its part, 0 to parts - 1, of tests marked `full`.

  The cases of a long file are spread over all parts. Those of a short file stay
  together, so that its fixtures are made once.
  """
  full = [item for item in items if item.get_closest_marker('full')]
  sizes = collections.Counter(item.path for item in full)
  short = sorted(path for path, size in sizes.items() if size < 2 * parts)
  case = itertools.count()
  return {item: (short.index(item.path) if item.path in short
                 else next(case)) % parts for item in full}


def _mark_all_but_every_nth(items):
  """Marks all but every nth case of a test marked `every(n)` as `full`."""
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
  """Deselects tests marked `full`, unless --full is given.

  With --full, the kill tests come first. They take longest, and at the end
  other workers would wait for them.
  """
  _mark_all_but_every_nth(items)
  if config.getoption('--full'):
    part, parts = config.getoption('--part')
    if parts > 1:  # quick tests are in no part
      part_of = _parts_of(items, parts)
      items[:] = [item for item in items if part_of.get(item) == part]
    items.sort(key=lambda item: 'kill' not in item.name)
    return
  full = [item for item in items if item.get_closest_marker('full')]
  config.hook.pytest_deselected(items=full)
  items[:] = [item for item in items if not item.get_closest_marker('full')]


def pytest_collection_finish():
  """Excludes all objects made so far from further garbage collection."""
  gc.collect()
  gc.freeze()


def pytest_terminal_summary(terminalreporter):
  """Prints how many kernel tests ran, and how many of them per file."""
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
  """Compiles a program once for all tests and workers that use this fixture."""
  from lra.cli import command
  folder = tmp_path_factory.getbasetemp()
  if 'PYTEST_XDIST_WORKER' in os.environ:
    folder = folder.parent
  command.use_compile_cache(folder / 'xla')
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  yield
  jax.config.update('jax_compilation_cache_dir', None)


@pytest.fixture(scope='module')
def quick_runs(compile_once):
  """Trains on one device and draws no curves, for tests of neither."""
  from lra.run import curves, mesh
  make = mesh.make

  def on_one(sizes, devices=None):
    return make(sizes, jax.devices()[:1] if devices is None else devices)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(curves, 'plot', lambda *_: None)
    patch.setattr(mesh, 'make', on_one)
    yield


def _resident():
  """Returns the bytes of memory that this process holds, 0 if unknown."""
  try:
    pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  except OSError:
    return 0
  return int(pages) * os.sysconf('SC_PAGE_SIZE')


@pytest.fixture(scope='module', autouse=True)
def forget_programs():
  """Frees JAX's compiled programs after a file if they take much memory."""
  yield
  if _resident() > 1.2e9:
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def no_protocols(monkeypatch):
  """Turns off the comparison of records with protocols, for made-up records."""
  from lra.board import store
  monkeypatch.setattr(store, 'protocol_settings', lambda *_: {})


@pytest.fixture(scope='session')
def mini_data(tmp_path_factory) -> pathlib.Path:
  """Prepares `listops_mini`, which some tests damage; returns the directory."""
  from lra import data_prep
  folder = tmp_path_factory.mktemp('data')
  data_prep.prepare('listops_mini', folder)
  return folder
