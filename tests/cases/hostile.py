"""497 hostile inputs over the commands and readers of a checkout.

PYTHONPATH=CLONE python tests/cases/hostile.py CLONE [WORD]

Reports tracebacks, hangs over 60 seconds, and inputs that are taken silently.
A name that ends with `?` may also be taken: it is odd, but valid.
"""

import collections
import gzip
import importlib.util
import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile

_spec = importlib.util.spec_from_file_location(
    'foreign', pathlib.Path(__file__).with_name('foreign.py'))
foreign = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(foreign)
CASES = {}
DEEP, BIG = '[' * 50_000, '1' + '0' * 400
ESC = '\x1b[2J'


def add(name, make):
  assert name not in CASES, name
  CASES[name] = make


def words(*arguments):
  return lambda tree, folder: list(arguments)


def files(contents, *arguments):
  """Returns a case that writes files, then runs the words."""
  def make(tree, folder):
    for name, content in contents.items():
      path = folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      if callable(content):
        content(path)
      else:
        path.write_bytes(
            content if isinstance(content, bytes) else content.encode())
    return list(arguments)
  return make


def edited(name, change, *arguments):
  """Returns a case that changes the JSON of a file of an exported model."""
  def make(tree, folder):
    path = foreign.example(tree, folder) / name
    value = json.loads(path.read_text()) if path.exists() else {}
    for field, new in change.items():
      place, *parts = value, *field.split('.')
      for part in parts[:-1]:
        place = place[part]
      if new is DEL:
        place.pop(parts[-1], None)
      else:
        place[parts[-1]] = new
    path.write_text(json.dumps(value))
    (folder / 'x.txt').write_text('[MAX 2 9 ]\n')
    return list(arguments)
  return make


DEL = object()


def whole(name, content, *arguments):
  def make(tree, folder):
    path = foreign.example(tree, folder) / name
    path.unlink(missing_ok=True)
    if callable(content):
      content(path)
    else:
      path.write_bytes(
          content if isinstance(content, bytes) else content.encode())
    (folder / 'x.txt').write_text('[MAX 2 9 ]\n')
    return list(arguments)
  return make


# 1 JSON files of a model, whole (40)
JSON = {
    'deep-object': '{"a":' * 50_000, 'null': 'null', 'true': 'true', '3': '3',
    'string': '"x"', 'nan': '{"task": NaN}', 'inf': '{"seed": 1e999}',
    'digits': f'{{"seed": {"9" * 5000}}}', 'utf16': '{}'.encode('utf-16'),
    'nul': b'\0' * 100}
for reader, arguments in {
    'config.json': ('predict', 'x.txt', 'model'),
    'env.json': ('predict', 'x.txt', 'model'),
    'result.json': ('compare', 'model', 'model'),
    'task.json': ('predict', 'x.txt', 'model')}.items():
  for kind, content in JSON.items():
    odd = '?' if (reader, kind) == ('task.json', 'null') else ''
    add(f'json-{reader}-{kind}{odd}', whole(reader, content, *arguments))

# 2 fields of a model's config (40)
FIELDS = {
    'encoder.width': (10**400, -1, True, '64', None, [64], 64.5),
    'encoder.num_layers': (0, 10**9, 1e999), 'seed': (-1, 2**40, '0', None),
    'model.name': ('../x', ESC, '', 'a\0b', 'os', 3),
    'task': ('', ESC, 'text\0', {'a': 1}), 'train': (None, 3, []),
    'mesh': (3, {}), 'train.steps': (0, 10**400), 'encoder.pooling': (ESC,),
    'optim.groups': ([['(' * 500, None]], 'x'), 'encoder': ({}, DEL),
    'train.lengths': ([10**400], ['x'], [[[1]]]), 'objective': ('os', ESC),
    'init_rules': ([[1, 2]],)}
for field, values in FIELDS.items():
  for i, value in enumerate(values):
    odd = '?' if (field, i) in (
        ('mesh', 0), ('mesh', 1), ('seed', 3)) else ''
    add(f'config-{field}-{i}{odd}', edited(
        'config.json', {field: value}, 'predict', 'x.txt', 'model'))

NEST = {'a': 1}
for _ in range(300):
  NEST = {'a': NEST}
LIST = 3
for _ in range(300):
  LIST = [LIST]
for i, (field, value) in enumerate((
    ('encoder', NEST), ('train.lengths', LIST), ('extra', NEST),
    ('model.kernel', LIST), ('optim.groups', LIST))):
  add(f'config-nested-{i}', edited(
      'config.json', {field: value}, 'predict', 'x.txt', 'model'))
START = (*('--config=configs/simpletron.py:listops_mini', '--norecord'),
         '--config.init_from=model')
for i, (field, value) in enumerate((
    ('model', 3), ('model', []), ('model.name', []), ('train', 'x'),
    ('encoder', None), ('seed', '0'), ('task', []), ('train.lengths', NEST),
    ('encoder', NEST))):
  add(f'init_from-config-{i}', edited(
      'config.json', {field: value}, *START))

# 3 safetensors (20)
W = foreign.weights
ONE = {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}
SAFE = {
    'empty': b'', 'short': b'\1\2', 'length': b'\xff' * 8 + b'{}',
    'no-json': W(b'hello'), 'list': W(b'[]'), 'deep': W(DEEP.encode()),
    'negative': W({'a': {**ONE, 'shape': [-2]}}, bytes(8)),
    'large': W({'a': {**ONE, 'shape': [2**62, 4]}}, bytes(8)),
    'overlap': W({'a': ONE, 'b': ONE}, bytes(8)),
    'hole': W({'a': {**ONE, 'data_offsets': [8, 16]}}, bytes(16)),
    'kind': W({'a': {**ONE, 'dtype': 'X9'}}, bytes(8)),
    'f8e8': W({'a': {'dtype': 'F8_E8M0', 'shape': [8],
                     'data_offsets': [0, 8]}}, bytes(8)),
    'f4': W({'a': {'dtype': 'F4', 'shape': [16], 'data_offsets': [0, 8]}},
            bytes(8)),
    'esc': W({ESC: ONE, '__metadata__': {
        'lra': '{"step": 1, "checksum": "x"}'}}, bytes(8)),
    'step': W({'a': ONE, '__metadata__': {'lra': '{"step": "1"}'}}, bytes(8)),
    'metadata': W({'a': ONE, '__metadata__': {'lra': '[]'}}, bytes(8)),
    'metadata-nan': W({'a': ONE, '__metadata__': {'lra': 'NaN'}}, bytes(8)),
    'zero': W({'a': {'dtype': 'F32', 'shape': [0, 4], 'data_offsets': [0, 0]},
               '__metadata__': {'lra': '{"step": 1}'}}),
    'fifo': os.mkfifo, 'folder': os.mkdir,
    'device': lambda path: path.symlink_to('/dev/zero')}
for kind, content in SAFE.items():
  add(f'safetensors-{kind}', whole(
      'model.safetensors', content, 'predict', 'x.txt', 'model'))

# 4 results (25)
RESULT = {
    'test.accuracy': (10**400, -1, '0.5', True), 'test': ({}, [], None),
    'test.correct': ('!!', '', 'AAAA'), 'test.confusion': ([], [[1]], [['x']]),
    'steps': (-1, 10**30), 'model': ('..', ESC), 'status': (ESC, 'ok\0'),
    'data_fingerprint': ('', ESC * 999), 'config': ([], {}, {'train': 3}),
    'floors': ({'': 0.1}, {'a': 10**400}), 'seed': (True,)}
for field, values in RESULT.items():
  for i, value in enumerate(values):
    for word in (('compare', 'model', 'model'), ):
      odd = '?' if (field, i) in (('test.correct', 1),) else ''
      add(f'result-{field}-{i}{odd}', edited(
          'result.json', {field: value}, *word))
add('result-esc-in-config?', edited(
    'result.json', {f'config.{ESC}': ESC}, 'compare', 'model',
    'model/result.json'))

# 5 metrics (14)
LINES = {
    'deep': DEEP, 'list': '[]', 'number': '3', 'text': '"x"', 'nul': '\0',
    'split': '{"split": [], "step": 1}', 'step': '{"split": "val"}',
    'step-text': '{"split": "val", "step": "x"}',
    'step-large': f'{{"split": "val", "step": {BIG}}}',
    'step-float': '{"split": "val", "step": 1.5}',
    'accuracy': f'{{"split": "val", "step": 1, "accuracy": {BIG}}}',
    'accuracy-list': '{"split": "val", "step": 1, "accuracy": [1]}',
    'accuracy-text': '{"split": "val", "step": 1, "accuracy": "x"}',
    'negative': '{"split": "val", "step": -5, "accuracy": 0.5}'}
for kind, line in LINES.items():
  add(f'metrics-{kind}', whole(
      'metrics.jsonl', f'{line}\n{{"split": "val", "step": 9, "accuracy": 0.5}}'
      '\n\n', 'curves', 'a.png', 'model'))
add('metrics-all-nan?', whole(
    'metrics.jsonl', '{"split": "val", "step": 1, "accuracy": NaN}\n',
    'curves', 'a.png', 'model'))

# 6 TOML files of runs (48)
E = foreign.ENTRY
TOML = {
    'bytes': b'\xff\xfe', 'utf16': E.encode('utf-16'), 'nul': E + '\0',
    'deep-inline': 'a = ' + '{a=' * 20_000, 'deep-array': E + (
        f'set.x = {"[" * 400}{"]" * 400}'), 'date': E + (
            'set.train.steps = 1979-05-27'), 'time': E + (
                'set.data_dir = 07:32:00'),
    'nan': E + 'set.train.learning_rate = nan', 'inf': E + (
        'set.train.learning_rate = inf'), 'big': E + f'set.train.steps = {BIG}',
    'digits': E + f'set.train.steps = {"9" * 5000}',
    'bool': E + 'set.train.steps = true', 'table': E + 'set.train = 3',
    'runs-table': '[runs]\nmodels=["gla"]', 'runs-list': 'runs = [1]',
    'runs-text': 'runs = "x"', 'models-number': '[[runs]]\nmodels=[3]',
    'models-nested': '[[runs]]\nmodels=[["gla"]]',
    'models-esc': '[[runs]]\nmodels=["\\u001b[2J"]\ntasks=["text"]',
    'models-path': '[[runs]]\nmodels=["../../x.py"]\ntasks=["text"]',
    'models-device': '[[runs]]\nmodels=["/dev/zero.py"]\ntasks=["text"]',
    'models-blank': '[[runs]]\nmodels=[""]\ntasks=["text"]',
    'models-colon': '[[runs]]\nmodels=["gla:text"]\ntasks=["text"]',
    'tasks-blank': '[[runs]]\nmodels=["gla"]\ntasks=[""]',
    'tasks-comma': '[[runs]]\nmodels=["gla"]\ntasks=["text,protocol=lra,x"]',
    'tasks-esc': '[[runs]]\nmodels=["gla"]\ntasks=["\\u001b[2J"]',
    'seeds-unicode': E + 'seeds = "\u0663"?', 'seeds-float': E + 'seeds = 1.5',
    'seeds-negative': E + 'seeds = "-1"', 'seeds-range': E + 'seeds = "5-1"',
    'protocol-path': E + 'protocol = "../x"', 'protocol-comma': E + (
        'protocol = "mini,seed=3"'), 'pretrain': E + 'pretrain = "x"',
    'search-nan': E + 'search.train.learning_rate = [nan, 1.0]',
    'search-nested': E + 'search.train.learning_rate = [1.0, [2.0]]',
    'search-empty-list': E + 'search.train.learning_rate = [[]]',
    'search-table': E + 'search.train.learning_rate = [{a=1}]',
    'search-text': E + 'search.train.steps = ["x"]',
    'search-dates': E + 'search.train.steps = [1979-05-27, 1979-05-28]',
    'search-log_every': E + 'search.train.log_every = [1, 2]',
    'search-equal': E + 'search.train.learning_rate = [0.1, 0.10]',
    'grid-kernel': E + 'grid.model.kernel = ["xla", ""]',
    'grid-blank-field': E + 'grid."" = [1]', 'grid-dot': E + 'grid."." = [1]',
    'grid-esc': E + 'grid."\\u001b[2J" = [1, 2]',
    'grid-bool': E + 'grid.train.steps = [true, 1]',
    'set-task': E + 'set.task = "text"', 'set-mesh': E + 'set.mesh.data = 2',
    'set-nul': E + 'set.tokenizer = "a\\u0000"',
    'study': E + '[study]\ntitle=3', 'study-empty': '[study]',
    'same-key': E + 'seeds="1"\nseeds="2"'}
for kind, content in TOML.items():
  odd = '?' if kind in ('set-mesh', 'set-task', 'grid-kernel') else ''
  add(f'toml-{kind}{odd}', files({'a.toml': content}, 'runs', 'a.toml',
                                 '--status'))
for i, flag in enumerate((
    '--part=0/0', '--part=1/1e9', '--part=\u0661/2', '--jobs=1e3',
    '--max_minutes=1e999', '--models=,', '--models=gla,,', '--at_once=0',
    '--hours=nan', '--log=csv,csv,x', '--results_dir=/dev/null/x')):
  odd = '?' if flag in ('--part=\u0661/2', '--models=gla,,', '--results_dir=/dev/null/x') else ''
  add(f'runs-flag-{i}{odd}', files({'a.toml': E}, 'runs', 'a.toml', '--status',
                                   flag))

# 7 flags of training (48)
BASE = '--config=configs/simpletron.py:listops_mini', '--norecord'
for i, flags in enumerate((
    '--grid=train.steps=[[1],[2]]', '--grid=train.steps=[1,(2)]',
    '--grid=train.steps=[(1),2', '--grid=train.steps=[1}', '--grid=a.b.c=[1]',
    '--grid=train..steps=[1]', '--grid==[1]', '--grid=[1]',
    '--grid=train.steps=[1e400]', f'--grid=train.steps=[{BIG}]',
    '--grid=train.lengths=[(1,(2,3))]', '--grid=optim.groups=[((1,),)]',
    '--grid=mesh.data=[0,2.5]', '--grid=encoder.width=[nan]',
    f'--grid=optim.groups=[{"(" * 5000}{")" * 5000}]',
    f'--grid=optim.groups=[{"-" * 50_000}1]',
    '--grid=data_dir=[a,b]', f'--grid={ESC}=[1]',
    '--seeds=0-', '--seeds=-', '--seeds=1e3', '--seeds= 1',
    '--seeds=99999999999999999999', '--profile=1:0', '--profile=-1:5',
    f'--profile={BIG}:{BIG}', '--profile=1:2:3', '--workdir=/dev/null/x',
    '--workdir=/proc/x', '--workdir=configs/simpletron.py', '--log=,,',
    '--log=csv,CSV', '--max_minutes=-0.1', '--at_once=1',
    '--config.train.learning_rate=[2]', '--config.train.learning_rate=(2)',
    '--config.train.learning_rate=2j', '--config.train.learning_rate=1_0_',
    '--config.train.steps=[2]',
    '--config.train.steps=1.0', '--config.encoder.remat=2',
    '--config.train.lengths=(1,,)',
    '--config.train.lengths={1:2}', '--config.optim.groups=[1]',
    '--config.init_from=configs/simpletron.py:listops_mini train.steps=x',
    '--config.init_from=configs/simpletron.py:listops_mini "',
    '--config.init_from=configs/none.py:listops_mini',
    '--config.init_from=/dev/null', '--config.init_from=.',
    '--config.tokenizer=/dev/zero', '--config.data_dir=/dev/null/x',
    '--config.model.name=__init__', '--config.objective=base',
    '--config.mesh.data=7', f'--config.seed={BIG}')):
  odd = '?' if flags in ('--config.encoder.embedding_std=1e-400',) else ''
  add(f'train-{i:02}-{ascii(flags[:36])}{odd}', words(*BASE, flags))
for i, text in enumerate((
    'train.learning_rate=log(1e-400,1)', 'train.learning_rate=log(-1,1)',
    'train.learning_rate=uniform(1,1)', 'train.learning_rate=uniform(nan,1)',
    'train.learning_rate=uniform(-3.5e38,0)', 'train.steps=int(0,1e3)',
    f'train.steps=int(-{BIG},1)', 'train.steps=int(1,2,3)',
    'train.learning_rate=[1,[2]]', 'train.learning_rate=[[1]]',
    'train.learning_rate=[nan]', 'train.learning_rate=(1,2)',
    'data_dir=[a,b]', 'mesh.data=[1,2]', 'encoder.remat=[True,False]',
    'seed=[1,2]', '=log(1,2)', 'a=log(1,2)', 'train=log(1,2)',
    'model.name=[gla,fnet', f'{"a" * 9999}=log(1,2)',
    f'optim.groups=[{"[" * 3000}{"]" * 3000}]')):
  add(f'space-{i:02}-{text[:30]}', words(
      *foreign.SEARCH, f'--space={text}'))

# 8 lines to predict (16)
for kind, content in {
    'empty': b'', 'bom': b'\xef\xbb\xbf', 'utf16': '3\n'.encode('utf-16'),
    'latin': '[MAX 2 \u00e9 ]'.encode('latin-1'), 'nul': b'[MAX 2\0 9 ]',
    'esc': ESC.encode(), 'operator': b'[XOR 1 2 ]', 'open': b'[MAX ' * 9999,
    'close': b']', 'digit': b'12', 'unicode-digit': '\u0663'.encode(),
    'long': b'[MAX 1 ' * 300_000, 'brackets': b'[ ] [ ]',
    'cr': b'[MAX 1 2 ]\r[MAX 1 2 ]?', 'fifo': os.mkfifo,
    'folder': os.mkdir}.items():
  def make(tree, folder, content=content):
    foreign.example(tree, folder)
    path = folder / 'x.txt'
    content(path) if callable(content) else path.write_bytes(content)
    return ['predict', 'x.txt', 'model']
  add(f'predict-{kind}', make)

# 9 words with odd arguments (24)
for i, line in enumerate((
    ('evaluate', 'model', '--lengths=0'), ('evaluate', 'model', '--lengths='),
    ('evaluate', 'model', '--lengths=1-0'),
    ('evaluate', 'model', '--lengths=9999999999'),
    ('evaluate', 'model', f'--lengths={ESC}'),
    ('evaluate', 'model/result.json'), ('evaluate', 'hf:'),
    ('evaluate', 'hf:../x'), ('evaluate', 'hf:a/b/c'), ('evaluate', 'hf:a/b c'),
    ('evaluate', ''), ('evaluate', '~nosuchuser/x'), ('export', 'x', 'x'),
    ('export', '/dev/null', 'model'), ('export', 'model', 'model'),
    ('export', 'out', 'model', '--push='), ('export', 'out', 'model', '--push=a'),
    ('export', '/dev/null/x', 'model'),
    ('compare', 'model', '/dev/zero'), ('compare', 'model', ''),
    ('curves', 'a.exe', 'model'), ('curves', '', 'model'),
    ('curves', '/dev/null/a.png', 'model'), ('board', '--check=/dev/zero'),
    ('board', '--check=model/config.json'), ('board', '--results_dir=model'),
    ('list', ''), ('', ), ('--', ), ('data', '--task=', '--describe'),
    ('data', '--task=text', '--source='), ('data', '--task=text\0'[:10], 'x'),
    ('data', '--task=listops_mini', '--data_dir=/dev/null/x'),
    ('data', '--task=mnist', '--source=/dev/zero'))):
  def make(tree, folder, line=line):
    foreign.example(tree, folder)
    return list(line)
  add(f'word-{i:02}-{ascii(" ".join(line))[:34]}', make)


# 10 sources of data (34)
def tar(path, name='a', size=None, data=b'x'):
  with tarfile.open(path, 'w') as made:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    made.addfile(info, io.BytesIO(data))


def prepared(task, contents):
  return files({f's/{name}': content for name, content in contents.items()},
               'data', f'--task={task}', '--source=s', '--data_dir=d')


def png(**fields):
  def write(path):
    from PIL import Image
    Image.new(fields.get('mode', 'L'), fields.get('size', (32, 32))).save(
        path, fields.get('form', 'PNG'))
    data = bytearray(path.read_bytes())
    if 'cut' in fields:
      data = data[:fields['cut']]
    if 'at' in fields:
      data[fields['at']] ^= 0xff
    path.write_bytes(data)
  return write


ROW = '"1","a","b"\n'
for kind, table in {
    'bytes': b'\xff\n', 'nul': b'"1","a","\0"\n', 'quote': b'"1","a","b\n',
    'cr': b'"1","a","b"\r"2","a","b"', 'class': b'"01","a","b"\n',
    'columns': b'"1","a","b","c"\n', 'blank': b'\n\n', 'empty': b'',
    'bom': b'\xef\xbb\xbf"1","a","b"\n', 'utf16': ROW.encode('utf-16'),
    'esc': f'"1{ESC}","a","b"\n'.encode(),
    'long': b'"1","a","' + b'b' * 300_000 + b'"\n'}.items():
  add(f'csv-{kind}', prepared('ag_news', {
      'train.csv': ROW, 'test.csv': table}))
for kind, row in {
    'deep': DEEP, 'list': '[]', 'number': '{"id": 1, "text": "a"}',
    'null': '{"id": "a", "text": null}', 'nan': '{"id": NaN, "text": "a"}',
    'surrogate': '{"id": "a", "text": "\\ud800"}', 'bytes': b'\xff',
    'twice': '{"id": "a", "text": "a"}\n{"id": "a", "text": "b"}',
    'bom?': '\ufeff{"id": "a", "text": "a"}'}.items():
  pairs = '1\ta\ta\n'
  add(f'jsonl-{kind}', prepared('retrieval_rfc', {
      'documents.jsonl': row, 'pairs.train.tsv': pairs, 'pairs.eval.tsv': pairs,
      'pairs.test.tsv': pairs}))
for kind, content in {
    'text': b'hello', 'empty': b'', 'gzip': gzip.compress(b'x'),
    'cut': gzip.compress(os.urandom(9999))[:500], 'tar': tar,
    'up': lambda path: tar(path, '../../x'),
    'esc': lambda path: tar(path, f'aclImdb/train/pos/{ESC}.txt'),
    'header': b'\xff' * 512 * 4, 'zip': b'PK\3\4' + bytes(99),
    'xz': b'\xfd7zXZ\0' + bytes(50), 'bz2': b'BZh9' + bytes(50)}.items():
  add(f'archive-{kind}', files(
      {'a.tar': content}, 'data', '--task=text', '--source=a.tar',
      '--data_dir=d'))
for kind, content in {
    'empty': b'', 'text': b'hello', 'cut': png(cut=40), 'crc': png(at=30),
    'data': png(at=-14), 'size': png(size=(9, 9)), 'grey16': png(mode='I;16'),
    'gif': png(form='GIF'), 'bomb': b'P4 60000 60000\n',
    'tiff': png(form='TIFF', cut=60), 'webp': b'RIFF\0\0\0\0WEBPVP8 '}.items():
  table = 'imgs/0 a.png 0 1\n' * 3
  add(f'image-{kind}', prepared('pathfinder', {
      'curv_contour_length_14/imgs/0/a.png': content,
      'curv_contour_length_14/metadata/0.npy': table}))
  if kind not in ('size', 'gif', 'data'):
    def make(tree, folder, content=content):
      path = folder / 'a.png'
      content(path) if callable(content) else path.write_bytes(content)

      def do():
        from lra.core import tasks
        from lra.data_prep import encode
        return encode.split(tasks.get('pathfinder'), [str(path)])
      return do
    add(f'example-image-{kind}', make)

# 11 a BERT from elsewhere (32)
for field, values in {
    'model_type': (None, [], 'gpt2', ESC), 'hidden_act': ([], None, {}),
    'hidden_size': (0, -1, 10**400, '32', None, 1e999),
    'num_attention_heads': (0, 3, True), 'vocab_size': (10**400, '64'),
    'layer_norm_eps': ('x', 10**400), 'is_decoder': (True,),
    'position_embedding_type': ([], ESC)}.items():
  for i, value in enumerate(values):
    def make(tree, folder, field=field, value=value):
      foreign.bert(folder, tree, **{field: value})
      return foreign.BERT
    add(f'bert-config-{field}-{i}', make)
PIECES = ['[PAD]', '[UNK]', '[CLS]', '[SEP]']
for kind, content in {
    'empty': b'', 'bytes': b'\xff\n', 'utf16': 'x'.encode('utf-16'),
    'nul': b'\0\n', 'one': b'[PAD]', 'many': b'a\n' * 99_999}.items():
  def make(tree, folder, content=content):
    (foreign.bert(folder, tree) / 'vocab.txt').write_bytes(content)
    return foreign.BERT
  add(f'bert-vocab-{kind}', make)
GOOD = {'model': {'vocab': {p: i for i, p in enumerate(PIECES)}},
        'normalizer': {'type': 'BertNormalizer', 'lowercase': True}}
for kind, content in {
    'deep': DEEP, 'null': 'null', 'list': '[[]]', 'model': '{"model": 3}',
    'vocab': json.dumps({**GOOD, 'model': {'vocab': ['a']}}),
    'ids': json.dumps({**GOOD, 'model': {'vocab': {'a': 'b', 'c': 1}}}),
    'big': json.dumps({**GOOD, 'model': {'vocab': {'[PAD]': 10**400}}}),
    'surrogate': json.dumps({**GOOD, 'model': {'vocab': {
        **GOOD['model']['vocab'], '\ud800': 4}}}),
    'line': json.dumps({**GOOD, 'model': {'vocab': {
        **GOOD['model']['vocab'], 'a\nb': 4}}}),
    'lowercase': json.dumps({**GOOD, 'normalizer': {
        'type': 'BertNormalizer', 'lowercase': 'yes'}})}.items():
  def make(tree, folder, content=content):
    (foreign.bert(folder, tree) / 'tokenizer.json').write_text(content)
    return foreign.BERT
  add(f'bert-tokenizer-{kind}', make)
for kind in SAFE:
  def make(tree, folder, content=SAFE[kind]):
    path = foreign.bert(folder, tree) / 'model.safetensors'
    path.unlink()
    content(path) if callable(content) else path.write_bytes(content)
    return foreign.read_bert(tree)
  # Tensors of other names are taken by nothing: only a run refuses them.
  odd = '?' if kind in ('esc', 'step', 'metadata', 'metadata-nan', 'zero') else ''
  add(f'bert-safetensors-{kind}{odd}', make)
for kind, what in {
    'list': '[1]', 'tensor': 'torch.zeros(3)', 'keys': '{1: torch.zeros(3)}',
    'nested': '{"a": {"b": torch.zeros(3)}}', 'nan': '{"a": torch.ones(3) / 0}',
    'quantised': '{"a": torch.quantize_per_tensor(torch.zeros(3), 1, 0,'
                 'torch.qint8)}', 'meta': '{"a": torch.zeros(3,device="meta")}',
    'sparse': '{"a": torch.zeros(3).to_sparse()}',
    'complex': '{"a": torch.zeros(3, dtype=torch.complex64)}'}.items():
  def make(tree, folder, what=what):
    place = foreign.bert(folder, tree)
    (place / 'model.safetensors').unlink()

    def do():
      import torch
      torch.save(eval(what), place / 'pytorch_model.bin')
      return foreign.read_bert(tree)()
    return do
  add(f'bert-torch-{kind}', make)
for kind, content in {'text': b'hello', 'pickle': b'cos\nsystem\n(S"id"\ntR.',
                      'zip': b'PK\3\4' + bytes(50)}.items():
  def make(tree, folder, content=content):
    place = foreign.bert(folder, tree)
    (place / 'model.safetensors').unlink()
    (place / 'pytorch_model.bin').write_bytes(content)
    return foreign.read_bert(tree)
  add(f'bert-torch-file-{kind}', make)

# 12 Python (24)
for i, text in enumerate((
    "lra.load('')", "lra.load(b'x')", 'lra.load(3)', 'lra.load([])',
    "lra.load('\\ud800')", "lra.load('a' * 9999)", "lra.results('')?",
    "lra.results(3)", "lra.results('a\\0')", "lra.results(each='x')",
    "lra.results(each=[])", "lra.load('model').evaluate('nothing')",
    "lra.load('model').evaluate(None)",
    "lra.load('model').evaluate('test', 'a\\0b')",
    "lra.load('model').evaluate_longer('')",
    "lra.load('model').evaluate_longer('x' * 999)",
    "lra.load('model').predict('x')", "lra.load('model').predict([3])",
    "lra.load('model').predict([None])", "lra.load('model').predict([b'\\xff'])",
    "lra.load('model').predict([''])", "lra.load('model').predict(['\\ud800'])",
    "lra.load('model').predict([['[MAX 1 2 ]']])",
    "lra.load('model').predict([{}])")):
  def make(tree, folder, text=text):
    foreign.example(tree, folder)
    return lambda: eval(text.rstrip('?'), {'lra': __import__('lra')})
  add(f'python-{i:02}-{text}', make)


def main():
  tree = foreign.Tree(foreign.ROOT)
  chosen, counts = ''.join(sys.argv[2:3]), collections.Counter()
  for name, make in CASES.items():
    if chosen not in name:
      continue
    with tempfile.TemporaryDirectory() as place:
      folder = pathlib.Path(place)
      (folder / 'configs').symlink_to(tree.root / 'configs')
      try:
        do = make(tree, folder)
      except Exception as e:
        counts['not made'] += 1
        print(f'NOT MADE {name!a} {e!r}')
        continue
      before = {p.name for p in folder.iterdir()}
      rc, out, err, seconds = tree.run(do, folder)
      left = {p.name for p in folder.iterdir()} - before - {'.cache', 'd'}
    errors = [x for x in err.splitlines() if x.startswith('error: ')]
    raw = '\x1b[2J' in out + err or '\x1b[2J' in err
    kind = ('no torch' if "No module named 'torch'" in err else
            'traceback' if 'Traceback' in err else 'hang' if rc == 'hang' else
            'raw escape' if raw else
            'crash' if isinstance(rc, int) and rc < 0 else
            'odd code' if rc not in (0, 2) else
            'silent' if rc == 0 and not name.endswith('?') else
            'no sentence' if rc == 2 and len(errors) != 1 else
            'long' if rc == 2 and not callable(do) and len(errors[0]) > 1500 else
            'left files' if rc == 2 and left else 'fine')
    counts[kind] += 1
    if kind != 'fine' or seconds > 20 or '-v' in sys.argv:
      print(f'{kind:11} {name!a} ({seconds:.0f} s) '
            f'{foreign.verdict(rc, out, err)!a} {left or ""}', flush=True)
  print(len([n for n in CASES if chosen in n]), 'inputs', dict(counts))


if __name__ == '__main__':
  main()
