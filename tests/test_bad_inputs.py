"""What a user can get wrong: one sentence that names it, and no trace.

One table: the command line, files beside it, and words of the sentence.
"""

import gzip
import os
import pathlib
import subprocess
import sys
import tarfile
from typing import NamedTuple

import commands
import pytest

from data_prep import aan, retrieval
from lra import fields
from lra.command import USER_ERROR

FIXTURES = commands.ROOT / 'tests' / 'fixtures'
PROGRESS = ('reading', 'checking', 'storing', 'drawing')
DERIVED = ('config.seed = base.derived(lambda n: 1 // (n - 3), '
           'config.encoder.get_ref("num_layers"))')
NESTED = '[' * 50_000


class Case(NamedTuple):
  """A command and what it must say.

  Attributes:
    words: of its sentence.
    arguments: of the command line.
    files: path -> content, beside it.
    program: as in `commands.Commands.run`.
  """
  words: tuple[str, ...]
  arguments: tuple[str, ...]
  files: dict[str, bytes] = {}  # noqa: RUF012
  program: str = 'run_lra'

  def __str__(self):
    return ' '.join(self.arguments)[-80:]


def _mini(words, *changes, model='simpletron'):
  """Changes of the fields of a config."""
  return Case(tuple(words.split('|')), (
      f'--config=configs/{model}.py:listops_mini', *(
          c if c.startswith('--') else f'--config.{c}' for c in changes)))


def _command(words, *arguments, **files):
  return Case(tuple(words.split('|')), arguments, {
      name.replace('_', '.'): content for name, content in files.items()})


def _file(words, body, config='own.py:listops_mini', *changes):
  """A config file of somebody's own."""
  content = body if isinstance(body, bytes) else body.encode()
  return Case(tuple(words.split('|')), (f'--config={config}', *changes),
              {'own.py': content})


def _made(words, line, *changes):
  """A config file whose seventh line is this."""
  return _file(words, (
      'from configs import base\n\n\n'
      'def get_config(arg=""):\n'
      '  config = base.get_config(arg)\n'
      '  config.model.name = "simpletron"\n'
      f'  {line}\n'
      '  return config\n'), 'own.py:listops_mini', *changes)


def _sweep(words, content):
  content = content if isinstance(content, bytes) else content.encode()
  return Case(tuple(words.split('|')), ('--sweep=s.txt', '--status'),
              {'s.txt': content})


def _source(words, task, files):
  return Case(tuple(words.split('|')), (
      f'--task={task}', '--source=source', '--data_dir=data'),
      {f'source/{name}': content for name, content in files.items()},
      'data_prep')


def _aan(words, row):
  rows = {name: (FIXTURES / 'aan' / name).read_bytes()
          for name in aan.FILES.values()}
  name = aan.FILES['train']
  return _source(f'{words}|{name}, line', 'retrieval',
                 {**rows, name: rows[name] + row + b'\n'})


def _rfc(words, document='', pair=''):
  files = {name: '0\ta\ta\n' for name in retrieval.RFC_FILES.values()}
  files['documents.jsonl'] = f'{{"id": "a", "text": "b"}}\n{document}'
  files['pairs.test.tsv'] += pair
  return _source(words, 'retrieval_rfc', {
      name: content.encode() for name, content in files.items()})


def _listops(words, **tables):
  files = {name: (FIXTURES / 'listops' / name).read_bytes() for name in (
      'basic_train.tsv', 'basic_val.tsv', 'basic_test.tsv')}
  files.update({f'basic_{k}.tsv': v for k, v in tables.items()})
  return _source(words, 'listops', files)


def _tar(name, size, content):
  """An archive whose only member claims a size."""
  member = tarfile.TarInfo(name)
  member.size = size
  return gzip.compress(member.tobuf() + content)


def _archive(words, content):
  return Case(tuple(words.split('|')), (
      '--task=text', '--source=a.tar.gz', '--data_dir=data'),
      {'a.tar.gz': content}, 'data_prep')


def _limits():
  """Each number of a config beyond both ends of its range, and nan."""
  for name, field in fields.FIELDS.items():
    if field.type not in (int, float):
      continue
    wrong = ['nan', 'inf', '-inf'] if field.type is float else []
    for limit, step in ((field.low, -1), (field.high, 1)):
      if limit is not None:
        wrong.append(limit + step if field.type is int or step < 0
                     else 1.1 * limit)
    wrong += [x for x in (field.above, field.below) if x is not None]
    for value in wrong:
      yield _mini(f'config.{name}=|it must be a', f'{name}={value}')


# What the reviews of the project have found, in their words.
REVIEWED = [
    _mini('config.train.learning_rate=nan', 'train.learning_rate=nan'),
    _mini('config.train.learning_rate=inf', 'train.learning_rate=inf'),
    _mini('config.train.weight_decay=nan', 'train.weight_decay=nan'),
    _mini('config.train.weight_decay=inf', 'train.weight_decay=inf'),
    _mini('config.encoder.embedding_std=nan', 'encoder.embedding_std=nan'),
    _mini('config.encoder.embedding_std=inf', 'encoder.embedding_std=inf'),
    _mini('config.train.checkpoint_minutes=nan',
          'train.checkpoint_minutes=nan'),
    _mini('config.train.checkpoint_minutes=inf',
          'train.checkpoint_minutes=inf'),
    _mini('config.train.learning_rate=-1|at least 0',
          'train.learning_rate=-1'),
    _mini('config.train.warmup_steps=-10|at least 0',
          'train.warmup_steps=-10'),
    _mini('config.train.b2=2|below 1', 'train.b2=2'),
    _mini('config.train.eps=-1|above 0', 'train.eps=-1'),
    _mini('config.encoder.embedding_std=-1|at least 0',
          'encoder.embedding_std=-1'),
    _mini('config.train.checkpoint_minutes=-1|at least 0',
          'train.checkpoint_minutes=-1'),
    _mini('--config.protocol|after the task', 'protocol=bogus'),
    _mini('--config.protocol|after the task', 'protocol='),
    _mini('--max_minutes=nan|finite', '--max_minutes=nan'),
    _mini('eval_batch_size=1000000000|at most', 'train.eval_batch_size=1'
          '000000000'),
    _mini('--config.train.foo|train.steps', 'train.foo=1'),
    _mini("--config.train.steps=many|'many'", 'train.steps=many'),
    _command('nowhere.py|No such file', '--config=nowhere.py:listops'),
    _made('own.py, line 7|RuntimeError: no luck',
          'raise RuntimeError("no luck")'),
    _made('own.py, line 7|SyntaxError', 'config.seed ='),
    _made('own.py, line 7|ModuleNotFoundError|nothing_like', 'import '
          'nothing_like_this'),
    _made("own.py, line 7|NameError|'unknown'", 'config.seed = unknown'),
    _made('own.py, line 7: AssertionError.', 'assert False'),
    _made('own.py|config.train.steps', 'del config.train.steps'),
    _file('own.py|dict', 'def get_config(arg):\n  return {}\n'),
    _file('own.py|NoneType', 'def get_config(arg):\n  return None\n'),
    _command('README.md, line 3|SyntaxError', '--config=README.md',
             README_md=b'# A title\n\nNo Python at all.\n'),
    _command('text_mini|has no task', '--config=configs/simpletron.py'),
    _sweep('s.txt, line 2|No closing quotation',
           '# first\nconfigs/simpletron.py:listops_mini "x\n'),
    _sweep('s.txt, line 2|utf-8', b'# first\nconfigs/\xff.py\n'),
    _sweep('s.txt, line 1|seeds=5-1',
           'configs/simpletron.py:listops_mini seeds=5-1\n'),
    _sweep('s.txt, line 1|seeds=0-99999999999',
           'configs/simpletron.py:listops_mini seeds=0-99999999999\n'),
    _sweep('s.txt, line 2|line 1|remove one', (
        'configs/simpletron.py:listops_mini data_dir=here\n'
        'configs/simpletron.py:listops_mini data_dir=there\n')),
    _sweep("s.txt, line 1|Unknown model 'nobody'",
           'configs/simpletron.py:listops_mini model.name=nobody\n'),
    _sweep('s.txt, line 1|config.train.b2=2',
           'configs/simpletron.py:listops_mini train.b2=2\n'),
    _aan('a bytes literal that cannot be read',
         b"1\tQ1\tQ2\tb'a', b'b'\ttext"),
    _aan('a bytes literal that cannot be read',
         b"1\tQ1\tQ2\tb'' " + 200_000 * b'-' + b"b''\ttext"),
    _rfc('documents.jsonl, line 2|not an object with id and text',
         '{"id": [1], "text": "x"}'),
    _rfc('documents.jsonl, line 2|not an object with id and text', NESTED),
    _archive('train/pos/0_9.txt|2147483648 bytes instead of',
             _tar('aclImdb/train/pos/0_9.txt', 2**31, b'good')),
]

OWN = [
    # sizes
    _mini('config.encoder.width=10000000|at most', 'encoder.width=10000000'),
    _mini('GiB|config.encoder.width=1000000', 'encoder.width=1000000'),
    _mini('eval_batch_size=1000000|GiB', 'train.eval_batch_size=1000000',
          'encoder.mlp_width=1000000'),
    _mini('num_layers=1000000000|at most', 'encoder.num_layers=1000000000'),
    _mini('seq_len=1000000000|at most', 'seq_len=1000000000'),
    _mini('seq_len=33|32 tokens', 'seq_len=33'),
    _mini('num_heads=99999999|at most', 'model.num_heads=99999999'),
    _mini('num_heads=7|64', 'model.num_heads=7'),
    _mini('head_layers=19|mlp_width=128', 'encoder.head_layers=19'),
    _mini('encoder.width=-4', 'encoder.width=-4'),
    _mini('encoder.width=0', 'encoder.width=0'),
    # arguments of mixers
    _mini('model.chunk_size=0', 'model.chunk_size=0', model='reformer'),
    _mini('model.rounds=-1', 'model.rounds=-1', model='reformer'),
    _mini('num_buckets must be even', 'model.num_buckets=5', model='reformer'),
    _mini('model.num_heads=0', 'model.num_heads=0', model='sinkhorn'),
    _mini('model.temperature=0', 'model.temperature=0', model='sinkhorn'),
    _mini('model.temperature=nan', 'model.temperature=nan', model='sinkhorn'),
    _mini('model.iterations=0', 'model.iterations=0', model='sinkhorn'),
    _mini('model.eps=-1', 'model.eps=-1', model='performer'),
    _mini('model.num_features=100000000|at most',
          'model.num_features=100000000', model='performer'),
    _mini('model.num_components=0', 'model.num_components=0',
          model='gmm_prf'),
    _mini('too few for 1000', 'model.num_components=1000', model='gmm_rks'),
    _mini('model.num_landmarks=0', 'model.num_landmarks=0',
          model='linformer'),
    _mini('num_features=3 is too few', 'model.num_features=3',
          model='fastfood_rks'),
    _mini("'all'|headwise", 'model.sharing=all', model='linformer'),
    _mini('model.block_size=0', 'model.block_size=0', model='local'),
    _mini('model.window=-1', 'model.window=-1', model='longformer'),
    _mini('window_blocks must be odd', 'model.window_blocks=2',
          model='bigbird'),
    _mini('window_blocks=2.5', 'model.window_blocks=2.5', model='bigbird'),
    _mini('model.pattern_seed=-1', 'model.pattern_seed=-1', model='bigbird'),
    _mini('num_heads must be 2', 'model.num_heads=1', model='sparse_fixed'),
    _mini('model.summary=0', 'model.summary=0', model='sparse_fixed'),
    _mini('model.stride=-1', 'model.stride=-1', model='sparse_strided'),
    _mini('model.rank=0', 'model.rank=0', model='synthesizer'),
    _mini('attention_dropout=1', 'model.attention_dropout=1',
          model='transformer'),
    _mini('attention_dropout=0|dense', 'model.attention_dropout=0.1',
          'model.kernel=chunked', model='transformer'),
    _mini("'up'|bidirectional", 'model.direction=up', model='lightning'),
    _mini('pooling=cls|lightning', 'encoder.pooling=cls', model='lightning'),
    _mini('qkv_width=32|64', 'model.qkv_width=32'),
    _mini('pallas_tpu', 'model.kernel=pallas_tpu'),
    # fields
    _mini('did you mean config.train.steps?', 'train.stepz=3'),
    _mini('did you mean config.train.steps?', 'steps=3'),
    _mini('did you mean config.train.steps?', 'trian.steps=3'),
    _mini('--config.model.foo|model.kernel', 'model.foo=3'),
    _mini('config.train.steps is missing', 'train={}'),
    _mini('--config.train=3', 'train=3'),
    _mini('--config.train.steps', 'train.steps'),
    _mini("'maybe'", 'encoder.remat=maybe'),
    _mini('5.5', 'train.steps=5.5'),
    _mini("''", 'train.steps='),
    _mini("'float8'|bfloat16", 'dtype=float8'),
    _mini("'max'|mean", 'encoder.pooling=max'),
    _mini("'nobody'|transformer", 'model.name=nobody'),
    _mini("'nothing'|classification", 'objective=nothing'),
    _mini("'nothing'|listops", 'task=nothing'),
    _mini('microbatch_size=7|32', 'train.microbatch_size=7'),
    _mini('final_fraction=0.5|rsqrt', 'optim.final_fraction=0.5'),
    _mini('optim.groups', 'optim.groups=(((('),
    _mini('optim.groups|learning_rate', 'optim.groups=((".*",{"learning_rate":'
          '-1.0}),)'),
    _mini('include_val', 'train.include_val=True'),
    _mini('--config.train.steps', '--config.train.steps=' + '9' * 5000),
    # the command line
    _command('--list|--config'),
    _mini('flags cannot be read|Error', f'optim.groups={"-" * 100_000}1'),
    _mini('optim.groups', f'optim.groups={"(" * 100_000}'),
    _command("flagfile|'nowhere'", '--flagfile=nowhere'),
    _command('--leaderboard|maybe', '--leaderboard=maybe'),
    _mini("--config.train.ste", 'train.ste\udcff=3'),
    _command("'extra'", '--config=configs/simpletron.py:listops_mini', '--',
             'extra'),
    _mini('nonsense', '--nonsense'),
    _mini('--max_minutes=-1', '--max_minutes=-1'),
    _mini('--max_minutes=soon', '--max_minutes=soon'),
    _mini('--status needs --sweep', '--status'),
    _command('--config', '--config.train.steps=3',
             '--config=configs/simpletron.py:listops_mini'),
    _command('names no file', '--config='),
    _command('configs cannot be read|directory', '--config=configs'),
    _command("'listop'|text_mini", '--config=configs/simpletron.py:listop'),
    _command('has no task', '--config=configs/simpletron.py:'),
    _command('protocol=x|nystrom',
             '--config=configs/simpletron.py:listops,protocol=x'),
    _command("Unknown model ''", '--config=configs/base.py:listops_mini'),
    _command('configs/protocols.py has no function get_config',
             '--config=configs/protocols.py:listops_mini'),
    # config files
    _file('has no function get_config', ''),
    _file('has no function get_config', 'get_config = 3'),
    _file('own.py|TypeError', 'def get_config():\n  pass\n'),
    _file('own.py, line 2|RecursionError',
          'def get_config(arg):\n  return get_config(arg)\n'),
    _file('own.py|SyntaxError', b'def get_config(arg):\n  "\xff"\n'),
    _file('own.py|SyntaxError', b'\0'),
    _made('own.py, line 7|SystemExit', 'raise SystemExit(0)'),
    _made('own.py, line 7|stepz', 'config.train.stepz'),
    _made('own.py, line 7|TypeError', 'config.train.steps = "many"'),
    _made('config.model.name', 'del config.model.name'),
    _made('config.speed is unknown', 'config.speed = 3'),
    _made('config.speed is unknown', 'config.speed = object()'),
    _made('config.train.steps=|at most', 'config.train.steps = 10**5000'),
    _made('own.py, line 7|OverflowError',
          'config.train.learning_rate = 10**400'),
    _made('config.protocol=', 'config.protocol = "a/../b"'),
    _made('config.protocol=', 'config.protocol = ""'),
    _made('own.py, line 7|ZeroDivisionError',
          f'{DERIVED}; config.encoder.num_layers = 3'),
    _made('config.seed does not follow|ZeroDivisionError', DERIVED,
          '--config.encoder.num_layers=3'),
    # sweeps
    _command('nothing.txt|No such file', '--sweep=nothing.txt'),
    _command('configs/nobody.py|No such file', '--config=nobody:listops'),
    _mini('--log=paper|csv, tensorboard, wandb', '--log=csv,paper'),
    _command('--log=paper', '--sweep=configs/sweeps/mini.txt', '--log=paper'),
    _mini('--profile=3 |1 to 4000', '--profile=3'),
    _mini('--profile=20:30 |1 to 25', '--profile=20:30', 'train.steps=25'),
    _command('--seeds needs --config', '--seeds=0-1'),
    _mini('--seeds and --config.seed', '--seeds=0-1', 'seed=3'),
    _mini('--seeds|leave out --workdir', '--seeds=0-1', '--workdir=here'),
    _mini('seeds=1-0 is not possible', '--seeds=1-0'),
    _mini('--at_once needs --seeds or --sweep', '--at_once=2'),
    _mini('--shard needs --sweep', '--shard=1/2'),
    _mini('--coordinator needs --distributed', '--coordinator=here:1'),
    _mini('--num_processes needs --coordinator', '--num_processes=2'),
    _mini('config.mesh with data=-1, fsdp=3, sequence=1 is not possible on 1 '
          'device:', '--config.mesh.fsdp=3'),
    _command('--profile|--sweep', '--sweep=configs/sweeps/mini.txt',
             '--profile=1:2'),
    _command('configs|directory', '--sweep=configs'),
    _sweep('s.txt has no run', '# nothing\n\n'),
    _sweep('line 1|all seeds at once',
           'configs/simpletron.py:listops_mini seed=3\n'),
    _sweep('line 1|all seeds at once',
           'configs/simpletron.py:listops_mini seeds=1 seeds=2\n'),
    *(_sweep(f'line 1|seeds={seeds}',
             f'configs/simpletron.py:listops_mini seeds={seeds}\n')
      for seeds in ('', 'x', '-1', '1-', '0,,1', '9999999999', '0-1000')),
    _sweep('line 2|line 1', 'configs/simpletron.py:listops_mini seeds=0-2\n'
           'configs/simpletron.py:listops_mini seeds=2\n'),
    _sweep('line 1|nowhere.py', 'nowhere.py:listops\n'),
    _sweep('line 1|has no task', 'configs/simpletron.py\n'),
    _sweep('line 1|stepz|train.steps',
           'configs/simpletron.py:listops_mini train.stepz=3\n'),
    _sweep('line 1|--config.train.steps',
           'configs/simpletron.py:listops_mini train.steps\n'),
    # sources
    _aan('4 columns instead of 5', b'1\tQ1\tQ2\ttext'),
    _aan("b'2'", b'2\tQ1\tQ2\ta\tb'),
    _aan('cannot be read', b"1\tQ1\tQ2\tb'\xff'\ttext"),
    _aan('cannot be read', b"1\tQ1\tQ2\tb'a\\'\ttext"),
    _rfc('documents.jsonl, line 2|id', '{"id": 1, "text": "x"}'),
    _rfc('documents.jsonl, line 2', 'null'),
    _rfc('documents.jsonl, line 2', '{"id": "b", "text": "\\ud800"}'),
    _rfc('pairs.test.tsv, line 2|2 columns', pair='0\ta'),
    _rfc("pairs.test.tsv, line 2|'z'", pair='0\ta\tz'),
    _source('documents.jsonl does not exist', 'retrieval_rfc', {'x': b''}),
    _listops('basic_val.tsv, line 1|header', val=b'7\t7\n'),
    _listops('basic_val.tsv, line 2|stray bracket',
             val=b'Source\tTarget\n]\t7\n'),
    _listops("basic_val.tsv, line 2|'[AVG'",
             val=b'Source\tTarget\n[AVG 1 ]\t1\n'),
    _listops('basic_val.tsv, line 2|utf-8',
             val=b'Source\tTarget\n\xff\t7\n'),
    _listops('basic_val.tsv, line 1|no expressions', val=b''),
    _archive('a.tar.gz is damaged', b'no archive'),
    _archive('a.tar.gz is damaged', gzip.compress(b'no archive')[:-9]),
    _archive('0 reviews', _tar('README', 4, b'good'.ljust(1536, b'\0'))),
    _source('1 reviews', 'text', {'aclImdb/train/neg/0_1.txt': b'bad'}),
    Case(('--task',), (), program='data_prep'),
    Case(('--nonsense',), ('--task=text', '--nonsense'), program='data_prep'),
    Case(("'txt'", 'listops'), ('--task=txt',), program='data_prep'),
    Case(('nowhere does not exist',), ('--task=text', '--source=nowhere'),
         program='data_prep'),
    Case(('--source=DIR',), ('--task=retrieval_rfc',), program='data_prep'),
]


@pytest.fixture(scope='module')
def fork():
  """Runs commands; see `commands.Commands`."""
  made = commands.Commands()
  yield made.run
  made.close()


def _files(folder):
  """Path -> content of what is there but for locks; links are not followed."""
  return {p: p.read_bytes() if p.stat().st_size < 1e6 else p.stat()
          for root, _, names in os.walk(folder)
          for p in (pathlib.Path(root, name) for name in names)
          if p.name != '.lock' and p.is_file()}


def _assert_one_sentence(done, words):
  assert done.returncode == USER_ERROR, done
  lines = [line for line in done.stderr.splitlines()
           if line.strip() and not line.startswith(PROGRESS)]
  assert len(lines) == 1 and lines[0].startswith('error: '), done.stderr
  for word in words:
    assert word in lines[0], f'{word!r} is not in {lines[0]!r}'
  assert not done.stdout


def _run(fork, case, folder):
  if not (folder / 'configs').exists():
    (folder / 'configs').symlink_to(commands.ROOT / 'configs')
  for name, content in case.files.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
  before = _files(folder)
  arguments = case.arguments
  if case.program == 'run_lra' and '--' not in arguments:
    arguments = *arguments, '--norecord'
  done = fork(case.program, *arguments, cwd=folder, HOME=str(folder))
  _assert_one_sentence(done, case.words)
  assert _files(folder) == before


@pytest.mark.parametrize('case', [
    *REVIEWED, *OWN, *(pytest.param(case, marks=pytest.mark.full)
                       for case in _limits())], ids=str)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, fork, tmp_path):
  _run(fork, case, tmp_path)


@pytest.mark.parametrize('case', [
    REVIEWED[0], _command('--list|--config')], ids=str)
def test_a_process_of_its_own_says_the_same(case, tmp_path):
  def run(program, *arguments, cwd, HOME):
    done = subprocess.run(
        [sys.executable, str(commands.ROOT / 'run_lra.py'), *arguments],
        cwd=cwd, text=True, capture_output=True, check=False,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'HOME': HOME,
             'PYTHONPATH': str(commands.ROOT)})
    return commands.Done(done.returncode, done.stdout, done.stderr)

  _run(run, case, tmp_path)
