"""Bad input gives one sentence that names the culprit, and leaves no files.

A case has command line arguments, input files and words that the sentence must
contain: a field, a flag, a file, a line or a value.
"""

import os
import pathlib
import resource
import subprocess
import sys
from typing import NamedTuple

import pytest

from lra.core import environment as environment_lib
from tests.helpers import commands
from tests.helpers.paths import ROOT


class Case(NamedTuple):
  """A wrong command, and the words that its error must contain.

  `words` are separated by '|'. `files` are those of the working directory,
  `environment` its variables; `program` is that of `commands.run`.
  """
  words: str
  arguments: tuple[str, ...]
  files: dict[str, str | bytes] = {}  # noqa: RUF012
  program: str = 'run_lra'
  environment: dict[str, str] = {}  # noqa: RUF012

  def __str__(self):
    variables = (f'{k}={v}' for k, v in self.environment.items())
    return ' '.join((*variables, *self.arguments))[-80:]


def mini(words, *changes, model='simpletron'):
  """Returns a case that changes fields of a config."""
  return Case(words, (f'--config=configs/{model}.py:listops_mini', *(
      c if c.startswith('--') else f'--config.{c}' for c in changes)))


def own_file(words, body, *changes):
  """Returns a case with a user's config file."""
  return Case(words, ('--config=own.py:listops_mini', *changes),
              {'own.py': body})


def own_line(words, line, *changes):
  """Returns a case with a config file whose seventh line is `line`."""
  return own_file(words, (
      'from configs import base\n\n\n'
      'def get_config(arg=""):\n'
      '  config = base.get_config(arg)\n'
      '  config.model.name = "simpletron"\n'
      f'  {line}\n'
      '  return config\n'), *changes)


def runs(words, content):
  """Returns a case with a file of runs."""
  return Case(words, ('runs', 'a.toml', '--status'), {'a.toml': content})


DERIVED = ('config.seed = base.derived(lambda n: 1 // (n - 3), '
           'config.encoder.get_ref("num_layers"))')
ENTRY = '[[runs]]\nmodels=["simpletron"]\ntasks=["listops_mini"]\n'
MANY = ','.join(map(str, range(1, 3001)))
CONFIG = '--config=configs/simpletron.py'
# Change of a field -> words. One of each kind: tests/run/test_check.py has each
# field and rule.
FIELDS = {
    'train.learning_rate=nan': 'config.train.learning_rate=nan',
    'encoder.width=1000000': 'config.encoder.width=1000000',
    'model.num_heads=7': 'num_heads=7|64', 'mesh.fsdp=3': 'config.mesh|fsdp=3',
    'model.kernel=pallas_tpu': 'pallas_tpu',
    'model.name=nobody': "'nobody'|transformer",
    'objective=nothing': "'nothing'|causal, classification",
    'train.lr=3': 'config.train.learning_rate', 'data_dir=~nosuchuser/x':
    '~nosuchuser/x', 'trian.steps=3': 'config.train.steps',
    'model.foo=3': '--config.model.foo|model.kernel',
    'encoder.width=130': 'config.encoder.width=130|num_heads=4',
    'protocol=': '--config.protocol',
    'train.lengths={1: 2}': 'config.train.lengths={1: 2}',
    'train={}': 'config.train.steps', 'train=3': '`3`',
    'model={}': 'config.model.name', 'train.steps': '--config.train.steps',
    'train.steps=many': "--config.train.steps=many|'many'",
    'train.steps=' + '9' * 5000: '--config.train.steps',
    'train.ste\udcff=3': '--config.train.ste', 'encoder.remat=maybe': "'maybe'",
    f'optim.groups={"-" * 100_000}1': 'flags',
    f'optim.groups={"(" * 100_000}': 'optim.groups'}
# Flag beside a config -> words.
FLAGS = {
    '--nonsense': 'nonsense', '--status': '--status',
    '--max_minutes=nan': '--max_minutes=nan',
    '--max_minutes=soon': '--max_minutes=soon',
    '--log=csv,paper': '--log=paper|csv, tensorboard, wandb',
    '--workdir=~nosuchuser/x': '~nosuchuser/x', '--workdir=': '--workdir=',
    '--profile=3': '--profile=3', '--at_once=2': '--at_once',
    '--seeds=1-0': 'seeds=1-0', '--part=1/2': '--part|runs',
    '--seeds=' + ','.join(f'{i}000-{i}999' for i in range(1, 200)): '11,000',
    '--grid=': '--grid', '--grid=train.steps=[3,3]': '--grid',
    '--grid=seed=[0,1]': '--grid |--seeds=',
    '--grid=train.lr=[0.02,0.05]': '--grid|config.train.learning_rate',
    '--grid=train.learning_rate=0.02,0.05':
    '--grid|train.learning_rate=[0.02,0.05]',
    '--grid=train.steps=[some,3]': '--grid|train.steps',
    '--grid=train.learning_rate=[1,-1]': 'config.train.learning_rate=-1',
    '--missing': '--missing|runs', '--html=site': '--html|board',
    '--process_id=0': '--process_id', '--num_processes=2': '--num_processes'}
# Words of the command line -> words of the error.
COMMANDS = {
    '--config=nowhere.py:listops': 'nowhere.py', '--config=': '--config',
    '--config=nobody:listops': 'configs/nobody.py', CONFIG: 'text_mini',
    f'{CONFIG}:listop': "'listop'|listops?",
    f'{CONFIG}:listops,protocol=x': "'x'|nystrom",
    '--config=configs/base.py:listops_mini': "''",
    f'{CONFIG}:listops_mini -- extra': "'extra'",
    f'--config.train.steps=3 {CONFIG}:listops_mini': '--config',
    '--flagfile=nowhere': "flagfile|'nowhere'", '--seeds=0-1': '--seeds',
    '--leaderboard --results_dir=resutls': 'resutls|--results_dir',
    '--leaderboard --max_minutes=1': '--max_minutes|train',
    '--config.train.steps=3': 'given|--config=',
    'runs mini --config.train.steps=3': 'given|set.train.steps',
    'compare configs/bace.py b.json': 'did you mean configs/base.py',
    'compare a.json b.json': 'a.json', 'evaluate nowhere': 'nowhere',
    'evaluate run --quantise=int8 --lengths=64': '--quantise|--lengths',
    'runs nothing.toml': 'nothing.toml', 'runs mini --log=paper': '--log=paper',
    'runs mini --status --workdir=q': '--workdir|train'}
TOGETHER = [
    mini('eval_batch_size=1000000', 'train.eval_batch_size=1000000',
         'encoder.mlp_width=1000000'),
    mini('num_buckets', 'model.num_buckets=5', model='reformer'),
    mini('attention_dropout=0|chunked', 'model.attention_dropout=0.1',
         'model.kernel=splash', model='transformer'),
    mini('pooling=cls|lightning', 'encoder.pooling=cls', model='lightning'),
    mini('--profile=20:30', '--profile=20:30', 'train.steps=25'),
    mini('--seeds|--config.seed', '--seeds=0-1', 'seed=3'),
    mini('--grid|--workdir', '--grid=train.steps=3', '--workdir=here'),
    mini('--grid|--config.train.steps', 'train.steps=5',
         '--grid=train.steps=[3,4]'),
    mini('3,000,000|--grid|--seeds', f'--grid=train.steps=[{MANY}]',
         '--seeds=0-999'),
    mini('--record and --norecord: leave out one', '--record', '--norecord')]
# A user's config file: its content, or the seventh line of a valid one.
OWN_FILES = [
    Case('README.md, line 3', ('--config=README.md',),
         {'README.md': '# A title\n\nNo Python at all.\n'}),
    *(own_file(words, body) for body, words in {
        '': 'own.py|get_config', 'get_config = 3': 'own.py|get_config',
        'def get_config(arg):\n  return {}\n': 'own.py',
        'def get_config():\n  pass\n': 'own.py',
        'def get_config(arg):\n  return get_config(arg)\n': 'own.py, line 2',
        b'def get_config(arg):\n  "\xff"\n': 'own.py',
        b'\0': 'own.py'}.items()),
    *(own_line('own.py, line 7' + more, line) for line, more in {
        'raise RuntimeError("no luck")': '', 'config.seed =': '',
        'import nothing_like_this': '|nothing_like',
        'raise SystemExit(0)': '', 'config.train.stepz': '|stepz',
        'config.train.steps = "many"': '',
        'config.train.learning_rate = 10**400': '',
        f'{DERIVED}; config.encoder.num_layers = 3': ''}.items()),
    *(own_line(words, line) for line, words in {
        'del config.train.steps': 'own.py|config.train.steps',
        'del config.model.name': 'config.model.name',
        'config.speed = object()': 'config.speed',
        'config.train.steps = 10**5000': 'config.train.steps=',
        'config.protocol = "a/../b"': 'config.protocol='}.items()),
    own_line('config.seed', DERIVED, '--config.encoder.num_layers=3')]
RUNS = [
    runs('a.toml|line 2', '# first\n[[runs\n'),
    runs('a.toml|utf-8', b'# first\nseeds = "\xff"\n'),
    runs('9,000,000|a.toml', f'{ENTRY}grid.train.steps=[{MANY}]\n'
         f'grid.train.eval_every=[{MANY}]\n'),
    runs('did you mean seeds', f'{ENTRY}sedes = "0-1"\n'),
    runs('10,010|a.toml', 10 * f'{ENTRY}seeds = "0-999,1000"\n'),
    runs('a.toml', '# nothing\n\n'),
    *(runs(f'a.toml|runs 1|seeds={seeds}', f'{ENTRY}seeds = "{seeds}"')
      for seeds in ('', 'x', '-1', '0,,1', '0-99999999999'))]
DATA = {
    '--csv=a.csv': '--text', '--length=9': '--csv',
    '': '--task', '--task=text --nonsense': '--nonsense',
    '--task=txt': "'txt'|text?",
    '--task=text --source=nowhere': 'nowhere does not exist',
    '--task=retrieval_rfc': '--source=DIR'}
KINDS = [
    *(mini(words, f'--config.{change}') for change, words in FIELDS.items()),
    *(mini(words, flag) for flag, words in FLAGS.items()),
    *(Case(words, tuple(said.split())) for said, words in COMMANDS.items()),
    *TOGETHER, *OWN_FILES, *RUNS,
    *(Case(words, tuple(said.split()), program='data_prep')
      for said, words in DATA.items())]
# Variable with a value that cannot be used -> words.
ENVIRONMENT = [Case(words or f'{name}={value}', (
    '--config=configs/simpletron.py:listops_mini',), environment={name: value})
               for name, value, words in (
    ('JAX_PLATFORMS', 'nonsense', ''), ('JAX_PLATFORMS', 'cuda', ''),
    ('JAX_NUM_CPU_DEVICES', '0', ''),
    ('JAX_DEFAULT_MATMUL_PRECISION', 'nonsense', ''),
    ('JAX_ENABLE_X64', 'maybe', ''), ('FLAX_FIX_RNG_SEPARATOR', 'maybe', ''),
    ('JAX_DEFAULT_DEVICE', 'foo', ''), ('XLA_FLAGS', 'nonsense', ''),
    ('XLA_FLAGS', '--xla_force_host_platform_device_count=0',
     'XLA_FLAGS=|device_count=0'),
    ('XLA_FLAGS', '--xla_force_host_platform_device_count=x', 'XLA_FLAGS='),
    ('XLA_FLAGS', '--xla_nonsense=1', 'XLA_FLAGS=|--xla_nonsense=1'),
    ('TFDS_DATA_DIR', '~nosuchuser/x', '~nosuchuser/x'))]


def _files(folder):
  """Returns path -> content of the files in `folder`, or stat() of large ones.

  Locks and caches of libraries are left out. Links to folders are not followed.
  """
  return {p: p.read_bytes() if p.stat().st_size < 1e6 else p.stat()
         for root, _, names in os.walk(folder)
         for p in (pathlib.Path(root, name) for name in names)
         if p.name != '.lock' and '.cache' not in p.parts and p.is_file()}


def _run(case, folder, run=commands.run):
  if not (folder / 'configs').exists():
    (folder / 'configs').symlink_to(ROOT / 'configs')
  for name, content in case.files.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(
        content if isinstance(content, bytes) else content.encode())
  before = _files(folder)
  arguments = case.arguments
  trains = any(a.startswith('--config=') for a in arguments)
  if case.program == 'run_lra' and trains and '--' not in arguments:
    arguments = *arguments, '--norecord'
  done = run(case.program, *arguments, cwd=folder, HOME=str(folder))
  commands.assert_one_sentence(done, *case.words.split('|'))
  assert _files(folder) == before


@pytest.mark.parametrize('case', KINDS, ids=str)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, tmp_path):
  _run(case, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize('case', [
    KINDS[0], Case('list', ('lst',))], ids=str)
def test_a_process_of_its_own_says_the_same(case, tmp_path):
  _run(case, tmp_path, _process())


def _process(preexec_fn=None, **environment):
  """Returns a function like `commands.run` that starts a new process."""
  def run(program, *arguments, cwd, HOME):
    done = subprocess.run(
        [sys.executable, str(ROOT / 'run_lra.py'), *arguments],
        cwd=cwd, text=True, capture_output=True, check=False,
        preexec_fn=preexec_fn,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'HOME': HOME,
            'PYTHONPATH': str(ROOT), **environment})
    return commands.Done(done.returncode, done.stdout, done.stderr)

  return run


@pytest.mark.every(6)
@pytest.mark.parametrize('case', ENVIRONMENT, ids=str)
def test_a_variable_that_cannot_be_used_is_named(case, tmp_path):
  _run(case, tmp_path, _process(**case.environment))


@pytest.mark.every(6)
@pytest.mark.parametrize('word', ['\u00e9', os.fsdecode(b'\xff')])
def test_a_path_of_another_locale_is_named(word, tmp_path):
  culprit = 'LC_ALL' if word.isprintable() else 'not UTF-8'
  _run(mini(culprit, f'--workdir={word}'), tmp_path, _process(
      LC_ALL='POSIX', PYTHONCOERCECLOCALE='0', PYTHONUTF8='0'))


def test_too_few_open_files_are_named(tmp_path):
  def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

  case = mini('12|ulimit -n')
  _run(case, tmp_path, _process(preexec_fn=limit))


@pytest.mark.parametrize('limit', [300_000, 2_000_000])
def test_a_low_limit_of_memory_is_named(tmp_path, limit):
  """Libraries of JAX, or later those of Orbax, need more address space."""
  def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1024 * limit, 1024 * limit))

  _run(mini(f'{limit:,}|ulimit -v'), tmp_path, _process(preexec_fn=limited))


def test_a_low_limit_of_open_files_is_raised(monkeypatch):
  limits = [(12, 4096), (12, 64), (64, 64), (-1, -1), (4096, -1)]
  for soft, hard in limits:
    raised = []
    monkeypatch.setattr(resource, 'getrlimit', lambda kind, x=(soft, hard): (
        x if kind == resource.RLIMIT_NOFILE else (-1, -1)))
    monkeypatch.setattr(resource, 'setrlimit', lambda _, x: raised.append(x))
    environment_lib.check_limits()
    assert raised == ([(64, hard)] if soft == 12 else [])
