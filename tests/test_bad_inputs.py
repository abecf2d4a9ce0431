"""Bad input gives one sentence that names the culprit, and leaves no files.

A case has command line arguments, input files and words that the sentence must
contain: a field, a flag, a file, a line or a value.
"""

import gzip
import os
import pathlib
import resource
import subprocess
import sys

import pytest

from lra.core import environment as environment_lib
from tests.helpers import commands
from tests.helpers.mistakes import (
  Case,
  aan,
  archive,
  command,
  environment,
  listops,
  mini,
  own_file,
  own_line,
  rfc,
  runs,
  source,
  tar,
)
from tests.helpers.paths import ROOT

DERIVED = ('config.seed = base.derived(lambda n: 1 // (n - 3), '
           'config.encoder.get_ref("num_layers"))')
ENTRY = '[[runs]]\nmodels=["simpletron"]\ntasks=["listops_mini"]\n'
MANY = ','.join(map(str, range(1, 3001)))
NESTED = '[' * 50_000


# Cases from reviews of the project.
REVIEWED = [
    mini('config.train.learning_rate=nan', 'train.learning_rate=nan'),
    mini('--config.protocol', 'protocol=bogus'),
    mini('--config.protocol', 'protocol='),
    mini('--max_minutes=nan', '--max_minutes=nan'),
    mini('eval_batch_size=1000000000', 'train.eval_batch_size=1'
         '000000000'),
    mini('--config.train.foo|train.steps', 'train.foo=1'),
    mini("--config.train.steps=many|'many'", 'train.steps=many'),
    mini('config.train.batch_size', "train={'steps': 3}"),
    mini('config.optim.name', 'optim={}'),
    mini('config.model.name', 'model={}'),
    mini('`3`', 'train=3'),
    command('nowhere.py', '--config=nowhere.py:listops'),
    own_line('own.py, line 7',
             'raise RuntimeError("no luck")'),
    own_line('own.py, line 7', 'config.seed ='),
    own_line('own.py, line 7|nothing_like', 'import '
             'nothing_like_this'),
    own_line("own.py, line 7|'unknown'", 'config.seed = unknown'),
    own_line('own.py, line 7', 'assert False'),
    own_line('own.py|config.train.steps', 'del config.train.steps'),
    own_file('own.py', 'def get_config(arg):\n  return {}\n'),
    own_file('own.py', 'def get_config(arg):\n  return None\n'),
    command('README.md, line 3', '--config=README.md',
            README_md=b'# A title\n\nNo Python at all.\n'),
    command('text_mini', '--config=configs/simpletron.py'),
    runs('a.toml|line 2', '# first\n[[runs\n'),
    runs('a.toml|utf-8', b'# first\nseeds = "\xff"\n'),
    runs('a.toml|runs 1|seeds=0-99999999999', f'{ENTRY}seeds="0-99999999999"'),
    runs('9,000,000|a.toml', f'{ENTRY}grid.train.steps=[{MANY}]\n'
         f'grid.train.eval_every=[{MANY}]\n'),
    runs('10,010|a.toml', 10 * f'{ENTRY}seeds = "0-999,1000"\n'),
    mini('3,000,000|--grid|--seeds',
         f'--grid=train.steps=[{MANY}]', '--seeds=0-999'),
    mini('11,000',
         '--seeds=' + ','.join(f'{i}000-{i}999' for i in range(1, 200))),
    aan('',
        b"1\tQ1\tQ2\tb'a', b'b'\ttext"),
    aan('',
        b"1\tQ1\tQ2\tb'' " + 200_000 * b'-' + b"b''\ttext"),
    rfc('documents.jsonl, line 2',
        '{"id": [1], "text": "x"}'),
    rfc('documents.jsonl, line 2', NESTED),
    archive('train/pos/0_9.txt|2,147,483,648',
            tar('aclImdb/train/pos/0_9.txt', 2**31, b'good')),
]

OWN = [
    # one of each kind; tests/run/test_check.py has each field and rule
    mini('config.train.eps=1e-39|float32', 'train.eps=1e-39'),
    mini('config.encoder.width=1000000', 'encoder.width=1000000'),
    mini('eval_batch_size=1000000', 'train.eval_batch_size=1000000',
         'encoder.mlp_width=1000000'),
    mini('num_heads=7|64', 'model.num_heads=7'),
    mini('model.temperature=nan', 'model.temperature=nan', model='sinkhorn'),
    mini('num_buckets', 'model.num_buckets=5', model='reformer'),
    mini('attention_dropout=0|chunked', 'model.attention_dropout=0.1',
         'model.kernel=splash', model='transformer'),
    mini("'up'|bidirectional", 'model.direction=up', model='lightning'),
    mini('pooling=cls|lightning', 'encoder.pooling=cls', model='lightning'),
    mini('pallas_tpu', 'model.kernel=pallas_tpu'),
    mini('chunkd|chunked, or', 'model.kernel=chunkd', model='transformer'),
    mini('config.train.learning_rate', 'train.lr=3'),
    mini('config.train.steps', 'trian.steps=3'),
    mini('--config.model.foo|model.kernel', 'model.foo=3'),
    mini('--config.train={}|config.train.steps', 'train={}'),
    mini('--config.train=3', 'train=3'),
    mini('--config.train.steps', 'train.steps'),
    mini("'maybe'", 'encoder.remat=maybe'),
    mini('5.5', 'train.steps=5.5'),
    mini("''", 'train.steps='),
    mini("'float8'|bfloat16", 'dtype=float8'),
    mini("'nobody'|transformer", 'model.name=nobody'),
    mini("'nothing'|classification", 'objective=nothing'),
    mini("'nothing'|listops", 'task=nothing'),
    mini('optim.groups', 'optim.groups=(((('),
    mini('--config.train.steps', '--config.train.steps=' + '9' * 5000),
    # the command line
    mini('flags', f'optim.groups={"-" * 100_000}1'),
    mini('optim.groups', f'optim.groups={"(" * 100_000}'),
    command("flagfile|'nowhere'", '--flagfile=nowhere'),
    command('resutls|--results_dir', '--leaderboard',
            '--results_dir=resutls'),
    mini("--config.train.ste", 'train.ste\udcff=3'),
    command("'extra'", '--config=configs/simpletron.py:listops_mini', '--',
            'extra'),
    mini('nonsense', '--nonsense'),
    mini('--max_minutes=-1', '--max_minutes=-1'),
    mini('--max_minutes=soon', '--max_minutes=soon'),
    mini('--status', '--status'),
    command('--config', '--config.train.steps=3',
            '--config=configs/simpletron.py:listops_mini'),
    command('--config', '--config='),
    command('configs', '--config=configs'),
    command("'listop'|listops?", '--config=configs/simpletron.py:listop'),
    command('--config', '--config=configs/simpletron.py:'),
    command("'x'|nystrom",
            '--config=configs/simpletron.py:listops,protocol=x'),
    command('listops_mini,protocol=lra,protocol=simpletron',
            '--config=configs/simpletron.py:listops_mini,protocol=lra,'
            'protocol=simpletron'),
    command("''", '--config=configs/base.py:listops_mini'),
    command('configs/protocols/mini.py',
            '--config=configs/protocols/mini.py:listops_mini'),
    # config files
    own_file('own.py|get_config', ''),
    own_file('own.py|get_config', 'get_config = 3'),
    own_file('own.py', 'def get_config():\n  pass\n'),
    own_file('own.py, line 2',
         'def get_config(arg):\n  return get_config(arg)\n'),
    own_file('own.py', b'def get_config(arg):\n  "\xff"\n'),
    own_file('own.py', b'\0'),
    own_line('own.py, line 7', 'raise SystemExit(0)'),
    own_line('own.py, line 7|stepz', 'config.train.stepz'),
    own_line('own.py, line 7', 'config.train.steps = "many"'),
    own_line('config.model.name', 'del config.model.name'),
    own_line('config.speed', 'config.speed = 3'),
    own_line('config.speed', 'config.speed = object()'),
    own_line('config.train.steps=', 'config.train.steps = 10**5000'),
    own_line('own.py, line 7',
         'config.train.learning_rate = 10**400'),
    own_line('config.protocol=', 'config.protocol = "a/../b"'),
    own_line('config.protocol=', 'config.protocol = ""'),
    own_line('own.py, line 7',
         f'{DERIVED}; config.encoder.num_layers = 3'),
    own_line('config.seed', DERIVED,
         '--config.encoder.num_layers=3'),
    # files of runs
    command('nothing.toml', 'runs', 'nothing.toml'),
    command('configs/nobody.py', '--config=nobody:listops'),
    mini('--log=paper|csv, tensorboard, wandb', '--log=csv,paper'),
    command('--log=paper', 'runs', 'mini', '--log=paper'),
    mini('~nosuchuser/x', '--workdir=~nosuchuser/x'),
    mini('~nosuchuser/x', 'data_dir=~nosuchuser/x'),
    mini('~nosuchuser/x', '--results_dir=~nosuchuser/x'),
    mini('--profile=3', '--profile=3'),
    mini('--profile=20:30', '--profile=20:30', 'train.steps=25'),
    command('--seeds', '--seeds=0-1'),
    mini('--seeds|--config.seed', '--seeds=0-1', 'seed=3'),
    mini('--seeds|--workdir', '--seeds=0-1', '--workdir=here'),
    mini('seeds=1-0', '--seeds=1-0'),
    mini('--at_once', '--at_once=2'),
    mini('--grid|--workdir',
         '--grid=train.steps=3', '--workdir=here'),
    mini('--grid', '--grid='),
    mini('--grid |--seeds=', '--grid=seed=[0,1]'),
    mini('--grid', '--grid=train.steps=[3,3]'),
    mini('--grid|config.train.rate', '--grid=train.rate='
         '[1,2]'),
    mini('--grid|config.train.learning_rate',
         '--grid=train.lr=[0.02,0.05]'),
    mini('--grid|train.learning_rate=[0.02,0.05]',
         '--grid=train.learning_rate=0.02,0.05'),
    mini('--train.steps=[3,4]',
         '--grid=--train.steps=[3,4]'),
    mini('train.steps', '--grid=train.steps=3 train.steps=4'),
    mini('--grid|--config.train.steps', 'train.steps=5',
         '--grid=train.steps=[3,4]'),
    mini('--grid|train.steps', '--grid=train.steps=[some,3]'),
    mini('config.train.learning_rate=-1', '--grid=train.learning_rate=[1,-1]'),
    command('--grid|train', 'runs', 'mini', '--status', '--grid=seed=1'),
    mini('--part|runs', '--part=1/2'),
    mini('--missing|runs', '--missing'),
    *(mini(f'--{flag}=', f'--{flag}=') for flag in (
        'workdir', 'results_dir', 'page', 'coordinator', 'seeds', 'profile')),
    command('--part=', 'runs', 'mini', '--status', '--part='),
    mini('--leaderboard|board', '--leaderboard'),
    command('--workdir|train', 'runs', 'mini', '--status', '--workdir=q'),
    command('--max_minutes|train',
            '--leaderboard', '--max_minutes=1'),
    command('--record', '--record'),
    mini('--record and --norecord: leave out one', '--record', '--norecord'),
    mini('--html|board', '--html=site'),
    command('--workdir', '--workdir=run'),
    command('a.json', 'compare', 'a.json', 'b.json'),
    command('nowhere', 'evaluate', 'nowhere'),
    command('--quantise|evaluate', '--quantise=int8'),
    command('--quantise|--lengths', 'evaluate', 'run', '--quantise=int8',
            '--lengths=64'),
    command('int4', 'evaluate', 'run', '--quantise=int4'),
    mini('--process_id', '--process_id=0'),
    mini('--coordinator', '--coordinator=here:1'),
    mini('--num_processes', '--num_processes=2'),
    mini('config.mesh|fsdp=3', '--config.mesh.fsdp=3'),
    command('--profile|train', 'runs', 'mini', '--profile=1:2'),
    command('configs', 'runs', './configs'),
    runs('a.toml', '# nothing\n\n'),
    *(runs(f'runs 1|seeds={seeds}', f'{ENTRY}seeds = "{seeds}"')
      for seeds in ('', 'x', '-1', '1-', '0,,1', '9999999999', '0-1000')),
    # sources
    aan('4', b'1\tQ1\tQ2\ttext'),
    aan("b'2'", b'2\tQ1\tQ2\ta\tb'),
    aan('', b"1\tQ1\tQ2\tb'\xff'\ttext"),
    aan('', b"1\tQ1\tQ2\tb'a\\'\ttext"),
    rfc('documents.jsonl, line 2', '{"id": 1, "text": "x"}'),
    rfc('documents.jsonl, line 2', 'null'),
    rfc('documents.jsonl, line 2', '{"id": "b", "text": "\\ud800"}'),
    rfc('pairs.test.tsv, line 2', pair='0\ta'),
    rfc("pairs.test.tsv, line 2|'z'", pair='0\ta\tz'),
    source('documents.jsonl', 'retrieval_rfc', {'x': b''}),
    listops('basic_val.tsv, line 1', val=b'7\t7\n'),
    listops('basic_val.tsv, line 2',
            val=b'Source\tTarget\n]\t7\n'),
    listops("basic_val.tsv, line 2|'[AVG'",
            val=b'Source\tTarget\n[AVG 1 ]\t1\n'),
    listops('basic_val.tsv, line 2',
            val=b'Source\tTarget\n\xff\t7\n'),
    listops('basic_val.tsv, line 1', val=b''),
    archive('a.tar.gz', b'no archive'),
    archive('a.tar.gz', gzip.compress(b'no archive')[:-9]),
    archive('aclImdb/train/neg',
            tar('README', 4, b'good'.ljust(1536, b'\0'))),
    source('1', 'text', {'aclImdb/train/neg/0_1.txt': b'bad'}),
    Case(('--task',), (), program='data_prep'),
    Case(('--nonsense',), ('--task=text', '--nonsense'), program='data_prep'),
    Case(("'txt'", 'text?'), ('--task=txt',), program='data_prep'),
    Case(('nowhere does not exist',), ('--task=text', '--source=nowhere'),
         program='data_prep'),
    Case(('--source=DIR',), ('--task=retrieval_rfc',), program='data_prep'),
]


# Environment variables with values that cannot be used.
ENVIRONMENT = [
    environment('JAX_PLATFORMS=nonsense',
                JAX_PLATFORMS='nonsense'),
    environment('JAX_PLATFORMS=cuda', JAX_PLATFORMS='cuda'),
    environment('JAX_NUM_CPU_DEVICES=0', JAX_NUM_CPU_DEVICES='0'),
    environment('JAX_DEFAULT_MATMUL_PRECISION=nonsense',
                JAX_DEFAULT_MATMUL_PRECISION='nonsense'),
    environment('JAX_ENABLE_X64=maybe', JAX_ENABLE_X64='maybe'),
    environment('FLAX_FIX_RNG_SEPARATOR=maybe', FLAX_FIX_RNG_SEPARATOR='maybe'),
    environment('JAX_DEFAULT_DEVICE=foo', JAX_DEFAULT_DEVICE='foo'),
    environment('XLA_FLAGS=|device_count=0',
                XLA_FLAGS='--xla_force_host_platform_device_count=0'),
    environment('XLA_FLAGS=|--xla_nonsense=1',
                XLA_FLAGS='--xla_nonsense=1'),
    environment('XLA_FLAGS=nonsense', XLA_FLAGS='nonsense'),
    environment("XLA_FLAGS=",
                XLA_FLAGS='--xla_force_host_platform_device_count=x'),
    environment('~nosuchuser/x',
                TFDS_DATA_DIR='~nosuchuser/x'),
]


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
    (folder / name).write_bytes(content)
  before = _files(folder)
  arguments = case.arguments
  trains = any(a.startswith('--config=') for a in arguments)
  if case.program == 'run_lra' and trains and '--' not in arguments:
    arguments = *arguments, '--norecord'
  done = run(case.program, *arguments, cwd=folder, HOME=str(folder))
  commands.assert_one_sentence(done, *case.words)
  assert _files(folder) == before


@pytest.mark.parametrize('case', [
    *REVIEWED, *OWN], ids=str)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, tmp_path):
  _run(case, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize('case', [
    REVIEWED[0], command('list', 'lst')], ids=str)
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


def test_too_few_open_files_are_named(tmp_path):
  def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

  case = mini('12|ulimit -n')
  _run(case, tmp_path, _process(preexec_fn=limit))


@pytest.mark.full
@pytest.mark.parametrize('limit', [300_000, 1_000_000])
def test_too_little_memory_for_a_library_is_named(tmp_path, limit):
  """Libraries of JAX, and later those of Orbax, need more address space."""
  def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1024 * limit, 1024 * limit))

  _run(mini('memory|ulimit -v'), tmp_path, _process(preexec_fn=limited))


@pytest.mark.parametrize('error, found', [
    (ImportError('libx.so: failed to map segment from shared object'), True),
    (ImportError('libx.so: cannot map zero-fill pages'), True),
    (MemoryError(), True),
    (ImportError("No module named 'x'"), False),
    (OSError('x'), False)])
def test_too_little_memory_is_told_from_other_errors(error, found):
  assert ('ulimit -v' in environment_lib.blamed(error)) == found


def test_a_low_limit_of_open_files_is_raised(monkeypatch):
  limits = [(12, 4096), (12, 64), (64, 64), (-1, -1), (4096, -1)]
  for soft, hard in limits:
    raised = []
    monkeypatch.setattr(resource, 'getrlimit', lambda _, x=(soft, hard): x)
    monkeypatch.setattr(resource, 'setrlimit', lambda _, x: raised.append(x))
    environment_lib.check_limits()
    assert raised == ([(64, hard)] if soft == 12 else [])
