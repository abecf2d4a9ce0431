"""What a user can get wrong: one sentence that names it, and no trace.

One table: the command line, files beside it, and words of the sentence.
"""

import gzip
import os
import pathlib
import resource
import subprocess
import sys

import pytest

from lra.cli.command import USER_ERROR
from lra.system import environment as environment_lib
from tests.helpers import commands
from tests.helpers.mistakes import (
  Case,
  aan,
  archive,
  command,
  environment,
  limits,
  listops,
  mini,
  own_file,
  own_line,
  rfc,
  source,
  sweep,
  tar,
)
from tests.helpers.paths import ROOT

PROGRESS = ('reading', 'checking', 'storing', 'drawing')
DERIVED = ('config.seed = base.derived(lambda n: 1 // (n - 3), '
           'config.encoder.get_ref("num_layers"))')
MANY = ','.join(map(str, range(1, 3001)))
NESTED = '[' * 50_000


# What the reviews of the project have found, in their words.
REVIEWED = [
    mini('config.train.learning_rate=nan', 'train.learning_rate=nan'),
    mini('config.train.learning_rate=inf', 'train.learning_rate=inf'),
    mini('config.train.weight_decay=nan', 'train.weight_decay=nan'),
    mini('config.train.weight_decay=inf', 'train.weight_decay=inf'),
    mini('config.encoder.embedding_std=nan', 'encoder.embedding_std=nan'),
    mini('config.encoder.embedding_std=inf', 'encoder.embedding_std=inf'),
    mini('config.train.checkpoint_minutes=nan',
         'train.checkpoint_minutes=nan'),
    mini('config.train.checkpoint_minutes=inf',
         'train.checkpoint_minutes=inf'),
    mini('config.train.learning_rate=-1|at least 0',
         'train.learning_rate=-1'),
    mini('config.train.warmup_steps=-10|at least 0',
         'train.warmup_steps=-10'),
    mini('config.train.b2=2|below 1', 'train.b2=2'),
    mini('config.train.eps=-1|above 0', 'train.eps=-1'),
    mini('config.train.eps=1e-320|0.0 in float32', 'train.eps=1e-320'),
    mini('config.train.eps=1e-39|0.0 in float32', 'train.eps=1e-39'),
    mini('config.train.b2=0.9999999999|below 1|1.0 in float32',
         'train.b2=0.9999999999'),
    mini('config.optim.groups|cannot be read', 'optim.groups=(("' + (
        '(' * 5000 + ')' * 5000) + '", {}),)'),
    mini('config.encoder.embedding_std=-1|at least 0',
         'encoder.embedding_std=-1'),
    mini('config.train.checkpoint_minutes=-1|at least 0',
         'train.checkpoint_minutes=-1'),
    mini('--config.protocol|after the task', 'protocol=bogus'),
    mini('--config.protocol|after the task', 'protocol='),
    mini('--max_minutes=nan|finite', '--max_minutes=nan'),
    mini('eval_batch_size=1000000000|at most', 'train.eval_batch_size=1'
         '000000000'),
    mini('--config.train.foo|train.steps', 'train.foo=1'),
    mini("--config.train.steps=many|'many'", 'train.steps=many'),
    mini('config.train.batch_size is missing', "train={'steps': 3}"),
    mini('config.optim.name is missing', 'optim={}'),
    mini('config.model.name is missing', 'model={}'),
    mini('`3` is not a dict', 'train=3'),
    command('nowhere.py|No such file', '--config=nowhere.py:listops'),
    own_line('own.py, line 7|RuntimeError: no luck',
             'raise RuntimeError("no luck")'),
    own_line('own.py, line 7|SyntaxError', 'config.seed ='),
    own_line('own.py, line 7|ModuleNotFoundError|nothing_like', 'import '
             'nothing_like_this'),
    own_line("own.py, line 7|NameError|'unknown'", 'config.seed = unknown'),
    own_line('own.py, line 7: AssertionError.', 'assert False'),
    own_line('own.py|config.train.steps', 'del config.train.steps'),
    own_file('own.py|dict', 'def get_config(arg):\n  return {}\n'),
    own_file('own.py|NoneType', 'def get_config(arg):\n  return None\n'),
    command('README.md, line 3|SyntaxError', '--config=README.md',
            README_md=b'# A title\n\nNo Python at all.\n'),
    command('text_mini|has no task', '--config=configs/simpletron.py'),
    sweep('s.txt, line 2|No closing quotation',
          '# first\nconfigs/simpletron.py:listops_mini "x\n'),
    sweep('s.txt, line 2|utf-8', b'# first\nconfigs/\xff.py\n'),
    sweep('s.txt, line 1|seeds=5-1',
          'configs/simpletron.py:listops_mini seeds=5-1\n'),
    sweep('s.txt, line 1|seeds=0-99999999999',
          'configs/simpletron.py:listops_mini seeds=0-99999999999\n'),
    sweep('9,000,000 runs (s.txt)|10,000',
          f'configs/simpletron.py:listops_mini train.steps=[{MANY}] '
          f'train.eval_every=[{MANY}]\n'),
    sweep('10,010 runs (s.txt)|10,000',
          10 * 'configs/simpletron.py:listops_mini seeds=0-999,1000\n'),
    sweep('4,194,304 bytes', 2**23 * '#'),
    mini('3,000,000 runs (--grid and --seeds)',
         f'--grid=train.steps=[{MANY}]', '--seeds=0-999'),
    mini('11,000 runs (seeds=1000-1999,',
         '--seeds=' + ','.join(f'{i}000-{i}999' for i in range(1, 200))),
    sweep('s.txt, line 2|line 1|remove one', (
        'configs/simpletron.py:listops_mini data_dir=here\n'
        'configs/simpletron.py:listops_mini data_dir=there\n')),
    sweep("s.txt, line 1|Unknown model 'nobody'",
          'configs/simpletron.py:listops_mini model.name=nobody\n'),
    sweep('s.txt, line 1|config.train.b2=2',
          'configs/simpletron.py:listops_mini train.b2=2\n'),
    aan('a bytes literal that cannot be read',
        b"1\tQ1\tQ2\tb'a', b'b'\ttext"),
    aan('a bytes literal that cannot be read',
        b"1\tQ1\tQ2\tb'' " + 200_000 * b'-' + b"b''\ttext"),
    rfc('documents.jsonl, line 2|not an object with id and text',
        '{"id": [1], "text": "x"}'),
    rfc('documents.jsonl, line 2|not an object with id and text', NESTED),
    archive('train/pos/0_9.txt|2147483648 bytes instead of',
            tar('aclImdb/train/pos/0_9.txt', 2**31, b'good')),
]

OWN = [
    # sizes
    mini('config.encoder.width=10000000|at most', 'encoder.width=10000000'),
    mini('GiB|config.encoder.width=1000000', 'encoder.width=1000000'),
    mini('eval_batch_size=1000000|GiB', 'train.eval_batch_size=1000000',
         'encoder.mlp_width=1000000'),
    mini('num_layers=1000000000|at most', 'encoder.num_layers=1000000000'),
    mini('seq_len=1000000000|at most', 'seq_len=1000000000'),
    mini('seq_len=33|32 tokens', 'seq_len=33'),
    mini('num_heads=99999999|at most', 'model.num_heads=99999999'),
    mini('num_heads=7|64', 'model.num_heads=7'),
    mini('head_layers=19|mlp_width=128', 'encoder.head_layers=19'),
    mini('encoder.width=-4', 'encoder.width=-4'),
    mini('encoder.width=0', 'encoder.width=0'),
    # arguments of mixers
    mini('model.chunk_size=0', 'model.chunk_size=0', model='reformer'),
    mini('model.rounds=-1', 'model.rounds=-1', model='reformer'),
    mini('num_buckets must be even', 'model.num_buckets=5', model='reformer'),
    mini('model.num_heads=0', 'model.num_heads=0', model='sinkhorn'),
    mini('model.temperature=0', 'model.temperature=0', model='sinkhorn'),
    mini('model.temperature=nan', 'model.temperature=nan', model='sinkhorn'),
    mini('model.iterations=0', 'model.iterations=0', model='sinkhorn'),
    mini('model.eps=-1', 'model.eps=-1', model='performer'),
    mini('model.num_features=100000000|at most',
         'model.num_features=100000000', model='performer'),
    mini('model.num_components=0', 'model.num_components=0',
         model='gmm_prf'),
    mini('too few for 1000', 'model.num_components=1000', model='gmm_rks'),
    mini('model.num_landmarks=0', 'model.num_landmarks=0',
         model='linformer'),
    mini('num_features=3 is too few', 'model.num_features=3',
         model='fastfood_rks'),
    mini("'all'|headwise", 'model.sharing=all', model='linformer'),
    mini('model.block_size=0', 'model.block_size=0', model='local'),
    mini('model.window=-1', 'model.window=-1', model='longformer'),
    mini('window_blocks must be odd', 'model.window_blocks=2',
         model='bigbird'),
    mini('window_blocks=2.5', 'model.window_blocks=2.5', model='bigbird'),
    mini('model.pattern_seed=-1', 'model.pattern_seed=-1', model='bigbird'),
    mini('num_heads must be 2', 'model.num_heads=1', model='sparse_fixed'),
    mini('model.summary=0', 'model.summary=0', model='sparse_fixed'),
    mini('model.stride=-1', 'model.stride=-1', model='sparse_strided'),
    mini('model.rank=0', 'model.rank=0', model='synthesizer'),
    mini('attention_dropout=1', 'model.attention_dropout=1',
         model='transformer'),
    mini('attention_dropout=0|chunked', 'model.attention_dropout=0.1',
         'model.kernel=splash', model='transformer'),
    mini("'up'|bidirectional", 'model.direction=up', model='lightning'),
    mini('pooling=cls|lightning', 'encoder.pooling=cls', model='lightning'),
    mini('qkv_width=32|64', 'model.qkv_width=32'),
    mini('pallas_tpu', 'model.kernel=pallas_tpu'),
    # fields
    mini('did you mean config.train.steps?', 'train.stepz=3'),
    mini('did you mean config.train.learning_rate?', 'train.lr=3'),
    mini('did you mean config.train.learning_rate?', 'rate=3'),
    mini('did you mean config.train.batch_size?', 'train.batch=3'),
    mini('did you mean config.model.num_heads?', 'model.heads=3'),
    mini('did you mean config.train.steps?', 'steps=3'),
    mini('did you mean config.train.steps?', 'trian.steps=3'),
    mini('--config.model.foo|model.kernel', 'model.foo=3'),
    mini('--config.train={} would replace all of config.train|'
         'config.train.steps is missing', 'train={}'),
    mini('--config.train=3', 'train=3'),
    mini('--config.train.steps', 'train.steps'),
    mini("'maybe'", 'encoder.remat=maybe'),
    mini('5.5', 'train.steps=5.5'),
    mini("''", 'train.steps='),
    mini("'float8'|bfloat16", 'dtype=float8'),
    mini("'max'|mean", 'encoder.pooling=max'),
    mini("'nobody'|transformer", 'model.name=nobody'),
    mini("'nothing'|classification", 'objective=nothing'),
    mini("'nothing'|listops", 'task=nothing'),
    mini('microbatch_size=7|32', 'train.microbatch_size=7'),
    mini('final_fraction=0.5|rsqrt', 'optim.final_fraction=0.5'),
    mini('optim.groups', 'optim.groups=(((('),
    mini('optim.groups|learning_rate', 'optim.groups=((".*",{"learning_rate":'
         '-1.0}),)'),
    mini('include_val', 'train.include_val=True'),
    mini('--config.train.steps', '--config.train.steps=' + '9' * 5000),
    # the command line
    command('--list|--config'),
    mini('flags cannot be read|Error', f'optim.groups={"-" * 100_000}1'),
    mini('optim.groups', f'optim.groups={"(" * 100_000}'),
    command("flagfile|'nowhere'", '--flagfile=nowhere'),
    command('--leaderboard|maybe', '--leaderboard=maybe'),
    command('resutls has no records|--results_dir', '--leaderboard',
            '--results_dir=resutls'),
    mini("--config.train.ste", 'train.ste\udcff=3'),
    command("'extra'", '--config=configs/simpletron.py:listops_mini', '--',
            'extra'),
    mini('nonsense', '--nonsense'),
    mini('--max_minutes=-1', '--max_minutes=-1'),
    mini('--max_minutes=soon', '--max_minutes=soon'),
    mini('--status needs --sweep', '--status'),
    command('--config', '--config.train.steps=3',
            '--config=configs/simpletron.py:listops_mini'),
    command('names no file', '--config='),
    command('configs cannot be read|directory', '--config=configs'),
    command("'listop'|text_mini", '--config=configs/simpletron.py:listop'),
    command('has no task', '--config=configs/simpletron.py:'),
    command('protocol=x|nystrom',
            '--config=configs/simpletron.py:listops,protocol=x'),
    command('listops_mini,protocol=lra,protocol=simpletron|name one',
            '--config=configs/simpletron.py:listops_mini,protocol=lra,'
            'protocol=simpletron'),
    command("Unknown model ''", '--config=configs/base.py:listops_mini'),
    command('configs/protocols.py has no function get_config',
            '--config=configs/protocols.py:listops_mini'),
    # config files
    own_file('has no function get_config', ''),
    own_file('has no function get_config', 'get_config = 3'),
    own_file('own.py|TypeError', 'def get_config():\n  pass\n'),
    own_file('own.py, line 2|RecursionError',
         'def get_config(arg):\n  return get_config(arg)\n'),
    own_file('own.py|SyntaxError', b'def get_config(arg):\n  "\xff"\n'),
    own_file('own.py|SyntaxError', b'\0'),
    own_line('own.py, line 7|SystemExit', 'raise SystemExit(0)'),
    own_line('own.py, line 7|stepz', 'config.train.stepz'),
    own_line('own.py, line 7|TypeError', 'config.train.steps = "many"'),
    own_line('config.model.name', 'del config.model.name'),
    own_line('config.speed is unknown', 'config.speed = 3'),
    own_line('config.speed is unknown', 'config.speed = object()'),
    own_line('config.train.steps=|at most', 'config.train.steps = 10**5000'),
    own_line('own.py, line 7|OverflowError',
         'config.train.learning_rate = 10**400'),
    own_line('config.protocol=', 'config.protocol = "a/../b"'),
    own_line('config.protocol=', 'config.protocol = ""'),
    own_line('own.py, line 7|ZeroDivisionError',
         f'{DERIVED}; config.encoder.num_layers = 3'),
    own_line('config.seed does not follow|ZeroDivisionError', DERIVED,
         '--config.encoder.num_layers=3'),
    # sweeps
    command('nothing.txt|No such file', '--sweep=nothing.txt'),
    command('configs/nobody.py|No such file', '--config=nobody:listops'),
    mini('--log=paper|csv, tensorboard, wandb', '--log=csv,paper'),
    command('--log=paper', '--sweep=configs/sweeps/mini.txt', '--log=paper'),
    mini('~nosuchuser/x begins with', '--workdir=~nosuchuser/x'),
    mini('~nosuchuser/x begins with', 'data_dir=~nosuchuser/x'),
    mini('~nosuchuser/x begins with', '--results_dir=~nosuchuser/x'),
    mini('--profile=3 |1 to 4000', '--profile=3'),
    mini('--profile=20:30 |1 to 25', '--profile=20:30', 'train.steps=25'),
    command('--seeds needs --config', '--seeds=0-1'),
    mini('--seeds and --config.seed', '--seeds=0-1', 'seed=3'),
    mini('--seeds|leave out --workdir', '--seeds=0-1', '--workdir=here'),
    mini('seeds=1-0 is not possible', '--seeds=1-0'),
    mini('--at_once needs --seeds, --grid or --sweep', '--at_once=2'),
    mini('--grid makes a run directory|leave out --workdir',
         '--grid=train.steps=3', '--workdir=here'),
    mini('--grid has no field', '--grid='),
    mini('--grid |--seeds=', '--grid=seed=[0,1]'),
    mini('--grid makes one run twice', '--grid=train.steps=[3,3]'),
    mini('--grid: --config.train.rate changes no field', '--grid=train.rate='
         '[1,2]'),
    mini('--grid: |did you mean config.train.learning_rate?',
         '--grid=train.lr=[0.02,0.05]'),
    mini('--grid: |brackets: train.learning_rate=[0.02,0.05]',
         '--grid=train.learning_rate=0.02,0.05'),
    mini('--train.steps=[3,4] is a flag: write train.steps=[3,4]',
         '--grid=--train.steps=[3,4]'),
    mini('train.steps is given twice', '--grid=train.steps=3 train.steps=4'),
    mini('--grid and --config.train.steps|leave out one', 'train.steps=5',
         '--grid=train.steps=[3,4]'),
    mini('--grid|train.steps', '--grid=train.steps=[some,3]'),
    mini('config.train.learning_rate=-1', '--grid=train.learning_rate=[1,-1]'),
    command('--grid needs --config|--sweep',
            '--sweep=configs/sweeps/mini.txt', '--status', '--grid=seed=1'),
    mini('--shard needs --sweep', '--shard=1/2'),
    mini('--missing needs --sweep', '--missing'),
    *(mini(f'--{flag}=|it must name', f'--{flag}=') for flag in (
        'workdir', 'results_dir', 'page', 'html', 'curves', 'sweep', 'shard',
        'coordinator', 'partition', 'seeds', 'evaluate', 'predict', 'profile')),
    command('--shard=|it must name', '--sweep=configs/sweeps/mini.txt',
            '--status', '--shard='),
    mini('--sweep and --config|leave out one', '--sweep=s.txt', '--status',
         '--workdir=q', 'train.steps=3'),
    mini('--leaderboard and --config|leave out one', '--leaderboard'),
    command('--evaluate and --compare|leave out one', '--evaluate=run',
            '--compare', 'a', 'b'),
    command('--workdir needs --config|--sweep',
            '--sweep=configs/sweeps/mini.txt', '--status', '--workdir=q'),
    command('--max_minutes needs --sweep or --config|--leaderboard',
            '--leaderboard', '--max_minutes=1'),
    command('--record needs --sweep or --config.', '--record'),
    mini('--record and --norecord: leave out one', '--record', '--norecord'),
    mini('--html needs --leaderboard|--config',
         '--html=site'),
    mini('--process_id needs --coordinator', '--process_id=0'),
    mini('--coordinator needs --distributed', '--coordinator=here:1'),
    mini('--num_processes needs --coordinator', '--num_processes=2'),
    mini('config.mesh with data=-1, fsdp=3, sequence=1 is not possible on 1 '
         'device:', '--config.mesh.fsdp=3'),
    command('--profile|--sweep', '--sweep=configs/sweeps/mini.txt',
            '--profile=1:2'),
    command('configs|directory', '--sweep=configs'),
    sweep('s.txt has no run', '# nothing\n\n'),
    sweep('line 1|all seeds at once',
          'configs/simpletron.py:listops_mini seed=3\n'),
    sweep('line 1|all seeds at once',
          'configs/simpletron.py:listops_mini seeds=1 seeds=2\n'),
    *(sweep(f'line 1|seeds={seeds}',
            f'configs/simpletron.py:listops_mini seeds={seeds}\n')
      for seeds in ('', 'x', '-1', '1-', '0,,1', '9999999999', '0-1000')),
    sweep('line 2|line 1', 'configs/simpletron.py:listops_mini seeds=0-2\n'
          'configs/simpletron.py:listops_mini seeds=2\n'),
    sweep('line 1|--seeds=0-4 is a flag: write seeds=0-4 here',
          'configs/simpletron.py:listops_mini --seeds=0-4\n'),
    sweep('line 1|write train.steps=3 here',
          'configs/simpletron.py:listops_mini --config.train.steps=3\n'),
    sweep('line 1|write configs/simpletron.py:listops_mini here',
          '--config=configs/simpletron.py:listops_mini\n'),
    sweep('line 1|train.steps is given twice|train.steps=[a,b]',
          'configs/simpletron.py:listops_mini train.steps=3 train.steps=4\n'),
    sweep('line 1|brackets: train.steps=[3,4]',
          'configs/simpletron.py:listops_mini train.steps=3,4\n'),
    sweep('line 1|nowhere.py', 'nowhere.py:listops\n'),
    sweep('line 1|has no task', 'configs/simpletron.py\n'),
    sweep('line 1|stepz|train.steps',
          'configs/simpletron.py:listops_mini train.stepz=3\n'),
    sweep('line 1|--config.train.steps',
          'configs/simpletron.py:listops_mini train.steps\n'),
    # sources
    aan('4 columns instead of 5', b'1\tQ1\tQ2\ttext'),
    aan("b'2'", b'2\tQ1\tQ2\ta\tb'),
    aan('cannot be read', b"1\tQ1\tQ2\tb'\xff'\ttext"),
    aan('cannot be read', b"1\tQ1\tQ2\tb'a\\'\ttext"),
    rfc('documents.jsonl, line 2|id', '{"id": 1, "text": "x"}'),
    rfc('documents.jsonl, line 2', 'null'),
    rfc('documents.jsonl, line 2', '{"id": "b", "text": "\\ud800"}'),
    rfc('pairs.test.tsv, line 2|2 columns', pair='0\ta'),
    rfc("pairs.test.tsv, line 2|'z'", pair='0\ta\tz'),
    source('documents.jsonl does not exist', 'retrieval_rfc', {'x': b''}),
    listops('basic_val.tsv, line 1|header', val=b'7\t7\n'),
    listops('basic_val.tsv, line 2|stray bracket',
            val=b'Source\tTarget\n]\t7\n'),
    listops("basic_val.tsv, line 2|'[AVG'",
            val=b'Source\tTarget\n[AVG 1 ]\t1\n'),
    listops('basic_val.tsv, line 2|utf-8',
            val=b'Source\tTarget\n\xff\t7\n'),
    listops('basic_val.tsv, line 1|no expressions', val=b''),
    archive('a.tar.gz is damaged', b'no archive'),
    archive('a.tar.gz is damaged', gzip.compress(b'no archive')[:-9]),
    archive('no reviews aclImdb/train/neg',
            tar('README', 4, b'good'.ljust(1536, b'\0'))),
    source('1 reviews', 'text', {'aclImdb/train/neg/0_1.txt': b'bad'}),
    Case(('--task',), (), program='data_prep'),
    Case(('--nonsense',), ('--task=text', '--nonsense'), program='data_prep'),
    Case(("'txt'", 'listops'), ('--task=txt',), program='data_prep'),
    Case(('nowhere does not exist',), ('--task=text', '--source=nowhere'),
         program='data_prep'),
    Case(('--source=DIR',), ('--task=retrieval_rfc',), program='data_prep'),
]


# Variables of a user's shell; all four are also in other letters and forms.
ENVIRONMENT = [
    environment('JAX_PLATFORMS=nonsense|known backends',
                JAX_PLATFORMS='nonsense'),
    environment('JAX_PLATFORMS=cuda', JAX_PLATFORMS='cuda'),
    environment('JAX_NUM_CPU_DEVICES=0', JAX_NUM_CPU_DEVICES='0'),
    environment('JAX_DEFAULT_MATMUL_PRECISION=nonsense',
                JAX_DEFAULT_MATMUL_PRECISION='nonsense'),
    environment('JAX_ENABLE_X64=maybe', JAX_ENABLE_X64='maybe'),
    environment('FLAX_FIX_RNG_SEPARATOR=maybe', FLAX_FIX_RNG_SEPARATOR='maybe'),
    environment('JAX_DEFAULT_DEVICE=foo', JAX_DEFAULT_DEVICE='foo'),
    environment('XLA_FLAGS=|device_count=0|process_index',
                XLA_FLAGS='--xla_force_host_platform_device_count=0'),
    environment('XLA_FLAGS=|Unknown flag|--xla_nonsense=1',
                XLA_FLAGS='--xla_nonsense=1'),
    environment('XLA_FLAGS=nonsense|Could not open file', XLA_FLAGS='nonsense'),
    environment("XLA_FLAGS=|Couldn't interpret value x",
                XLA_FLAGS='--xla_force_host_platform_device_count=x'),
    environment('~nosuchuser/x begins with the home folder',
                TFDS_DATA_DIR='~nosuchuser/x'),
]


def _files(folder):
  """Path -> content of what is there, but for locks and libraries' caches.

  Links are not followed.
  """
  return {p: p.read_bytes() if p.stat().st_size < 1e6 else p.stat()
         for root, _, names in os.walk(folder)
         for p in (pathlib.Path(root, name) for name in names)
         if p.name != '.lock' and '.cache' not in p.parts and p.is_file()}


def _assert_one_sentence(done, words):
  assert done.returncode == USER_ERROR, done
  lines = [line for line in done.stderr.splitlines()
          if line.strip() and not line.startswith(PROGRESS)]
  assert len(lines) == 1 and lines[0].startswith('error: '), done.stderr
  for word in words:
    assert word in lines[0], f'{word!r} is not in {lines[0]!r}'
  assert not done.stdout


def _run(case, folder):
  if not (folder / 'configs').exists():
    (folder / 'configs').symlink_to(ROOT / 'configs')
  for name, content in case.files.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
  before = _files(folder)
  arguments = case.arguments
  runs = any(a.startswith(('--config=', '--sweep=')) for a in arguments)
  if case.program == 'run_lra' and runs and '--' not in arguments:
    arguments = *arguments, '--norecord'
  done = commands.run(case.program, *arguments, cwd=folder, HOME=str(folder))
  _assert_one_sentence(done, case.words)
  assert _files(folder) == before


@pytest.mark.parametrize('case', [
    *REVIEWED, *OWN, *(pytest.param(case, marks=pytest.mark.full)
                      for case in limits())], ids=str)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, tmp_path):
  _run(case, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize('case', [
    REVIEWED[0], command('--list|--config')], ids=str)
def test_a_process_of_its_own_says_the_same(case, tmp_path):
  _run(_process(), case, tmp_path)


def _process(preexec_fn=None, **environment):
  """As `commands.Commands.run`, by a process of its own."""
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
  _run(_process(**case.environment), case, tmp_path)


def test_too_few_open_files_are_named(tmp_path):
  def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

  case = mini('Only 12 files may be open|ulimit -n')
  _run(_process(preexec_fn=limit), case, tmp_path)


def test_a_low_limit_of_open_files_is_raised(monkeypatch):
  limits = [(12, 4096), (12, 64), (64, 64), (-1, -1), (4096, -1)]
  for soft, hard in limits:
    raised = []
    monkeypatch.setattr(resource, 'getrlimit', lambda _, x=(soft, hard): x)
    monkeypatch.setattr(resource, 'setrlimit', lambda _, x: raised.append(x))
    environment_lib.check_limits()
    assert raised == ([(64, hard)] if soft == 12 else [])
