"""Takes snapshots of what users of a checkout see, and compares them.

  python tests/equality.py make-stopped DIR
  python tests/equality.py snapshot BEFORE.json --stopped DIR
  python tests/equality.py snapshot AFTER.json --stopped DIR --checkout OTHER
  python tests/equality.py compare BEFORE.json AFTER.json

A snapshot has parts, each a dict {name: digest or small value}. Both snapshots
must come from one machine and one environment, since digests are of exact bits.
`INTERNALS`, `WORDS` and `internal` are all that this file knows of the code's
own names; a name that moves needs a change only there.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib import metadata

# What is used of the code, name -> its places, the newest first.
INTERNALS = {
    'configs': 'lra.configs configs',
    'protocols': 'lra.configs.protocols:PROTOCOLS configs.protocols:PROTOCOLS',
    'tasks': 'lra.core.tasks:TASKS lra.tasks:TASKS',
    'harder': 'lra.core.tasks:HARDER lra.tasks:HARDER',
    'config_hash': 'lra.schema.identity:config_hash '
                   'lra.config.identity:config_hash',
    'run_folder': 'lra.schema.identity:run_folder '
                  'lra.config.identity:run_folder',
    'read_result': 'lra.schema.result:read lra.records.result:read',
    'resolve': 'lra.run.experiment:resolve lra.experiment.experiment:resolve',
    'program': 'lra.run.program:make lra.training.program:make',
    'gradient': 'lra.run.step:batch_gradient lra.training.step:batch_gradient',
    'load_data': 'lra.data.prepared:load',
    'train_batch': 'lra.data.batches:train_batch',
    'kernels': 'lra.kernels kernels'}
# A command -> its words in a new checkout, and its words in an old one.
WORDS = {
    'list': (('list',), ('--list',)),
    'board': (('board',), ('--leaderboard',)),
    'studies': (('runs', '--page'), ('--studies',)),
    'check': (('board', '--check={}'), ('--check_record={}',)),
    'sweep': (('runs', '{}'), ('--sweep={}',)),
    'suite': (('runs', '{}'), ('--suite={}',)),
    'evaluate': (('evaluate', '{}'), ('--evaluate={}',)),
    'predict': (('predict', '{}', '{}'), ('--predict={}', '{}')),
    'compare': (('compare', '{}', '{}'), ('--compare', '{}', '{}')),
    'curves': (('curves', '{}', '{}'), ('--curves={}', '{}')),
    'export': (('export', '{}', '{}'), ('--export={}', '{}'))}
# One thread, and little time to compile. From 0.11 on, JAX refuses the last one.
FLAGS = ('--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0'
         ' --xla_cpu_parallel_codegen_split_count=1' + (
             ' --xla_cpu_use_fusion_emitters=false'
             if metadata.version('jax') < '0.11' else ''))
TINY = tuple(f'--config.{field}' for field in (
    'encoder.width=16', 'encoder.num_layers=1', 'encoder.mlp_width=16',
    'model.num_heads=2', 'train.batch_size=8', 'train.eval_every=3'))
STOPPED = {  # model -> its arguments; each run stops after a checkpoint
    'simpletron': (), 'mamba2': (),
    'transformer': ('--config.train.microbatch_size=8',)}
# Fields of a result that are measured, or name a version of the code.
MEASURED = re.compile(
    '.*(seconds|per_s|bytes)|git_.*|(model|config)_sha256|runs_at_once')
HEAVY = ('jax', 'flax', 'numpy', 'pandas', 'absl', 'ml_collections', 'orbax',
         'pydantic', 'matplotlib', 'tensorflow_datasets', 'optax', 'jinja2')


def internal(name):
  """Returns a module or an object of the code by its name in INTERNALS."""
  for place in INTERNALS[name].split():
    module, _, attribute = place.partition(':')
    with contextlib.suppress(ModuleNotFoundError):
      found = importlib.import_module(module)
      return getattr(found, attribute) if attribute else found
  raise ModuleNotFoundError(f'{name}: none of {INTERNALS[name]}')


def words(checkout, name, *values):
  """Returns the arguments of a command in the spelling of a checkout."""
  old = not (checkout / 'lra/cli/runs.py').exists()
  form, values = WORDS[name][old], list(values)
  filled = [w.format(values.pop(0)) if '{}' in w and values else w
            for w in form]
  return [w for w in filled if '{}' not in w] + values


def digest(value):
  """Returns a short SHA-256 of bytes, a text, a JSON value or a tree."""
  if isinstance(value, (bytes, str)):
    data = value if isinstance(value, bytes) else value.encode()
    return hashlib.sha256(data).hexdigest()[:16]
  return digest(json.dumps(value, sort_keys=True, default=list))


def bits(tree):
  """Returns a digest of the names, dtypes, shapes and bits of arrays."""
  import jax
  import numpy as np
  sums = hashlib.sha256()
  for path, x in jax.tree_util.tree_leaves_with_path(tree):
    x = np.asarray(x)
    sums.update(f'{jax.tree_util.keystr(path)} {x.dtype} {x.shape}'.encode())
    sums.update(np.ascontiguousarray(x).tobytes())
  return sums.hexdigest()[:16]


def environment(checkout, scratch):
  """Returns the environment of all processes."""
  kept = {name: value for name, value in os.environ.items()
          if not name.startswith(('JAX_', 'XLA_', 'TFDS_', 'PYTHON'))}
  return {**kept, 'PYTHONPATH': str(checkout), 'JAX_PLATFORMS': 'cpu',
          'XLA_FLAGS': FLAGS, 'OMP_NUM_THREADS': '1', 'PYTHONHASHSEED': '0',
          'OPENBLAS_NUM_THREADS': '1', 'TPU_SKIP_MDS_QUERY': '1',
          'PYTHONPYCACHEPREFIX': str(scratch / 'pycache'),
          'TFDS_DATA_DIR': str(scratch / 'data'), 'COLUMNS': '80'}


def program(o, *arguments, cwd=None, **more):
  """Runs run_lra.py of the checkout; returns the finished process."""
  return subprocess.run(
      [sys.executable, o.checkout / 'run_lra.py', *arguments], text=True,
      cwd=cwd or o.scratch, capture_output=True, stdin=subprocess.DEVNULL,
      errors='replace', **more)


def train(model, folder, *arguments):
  """Returns the arguments of a small run that has no record."""
  return [f'--config={model}:listops_mini', '--norecord', *TINY,
          f'--workdir={folder}', '--compile_cache=', *arguments]


def outcome(folder):
  """Returns digests of the result, metrics and parameters of a run."""
  import lra
  result = json.loads((folder / 'result.json').read_text())
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  kept = [{k: v for k, v in fields.items() if not MEASURED.fullmatch(k)}
          for fields in (result, *map(json.loads, lines))]
  return {'result': digest(kept[0]), 'metrics': digest(kept[1:]),
          'tested': bits(lra.load(folder).params),
          'last': bits(lra.load(folder / 'checkpoints/last').params)}


def models():
  """Returns the names of all config files of models."""
  folder = pathlib.Path(internal('configs').__path__[0])
  return sorted(path.stem for path in folder.glob('*.py')
                if path.stem not in ('__init__', 'base'))


def config(model, argument):
  """Returns the config of a config file, with references."""
  room = internal('configs').__name__
  return importlib.import_module(f'{room}.{model}').get_config(argument)


def records(o):
  """Checks that committed records keep their hash, folder and content."""
  runs = o.checkout / 'lra/results/runs'
  found = {}
  for path in sorted(runs.rglob('*.json')):
    run = internal('read_result')(path)
    dumped = run.model_dump(by_alias=True, exclude_unset=True)
    found[path.relative_to(runs).as_posix()] = ' '.join((
        internal('config_hash')(run.config), str(run.record_path),
        str(internal('run_folder')(run.config)), str(run.config_sha256)[:16],
        digest(dumped), str(json.loads(path.read_text()) == dumped)))
  return found


def configs(o):
  """Checks the resolved configs and the folders of their runs."""
  protocols, found = internal('protocols'), {}
  first = {task: next(p for p in protocols if task in protocols[p])
           for task in internal('tasks')
           if any(task in known for known in protocols.values())}
  wanted = {f'{model} {task}' for model in models() for task in first}
  wanted |= {f'{model} {task},protocol={protocol}' for model in (
      'transformer', 'simpletron', 's4d') for protocol in protocols
             for task in protocols[protocol]}
  for name in sorted(wanted):
    try:
      made = internal('resolve')(config(*name.split()))
      found[name] = f'{made.folder} {digest(made.config.to_dict())}'
    except Exception as error:  # such as a setting that does not fit the task
      found[name] = type(error).__name__
  return found


def mixers(o):
  """Checks parameters, outputs and gradients of a small model per mixer."""
  import jax
  import numpy as np
  rng, found = np.random.default_rng(0), {'jax': jax.__version__}
  tokens = rng.integers(1, 16, (2, 2, 32)).astype(np.int16)
  tokens *= np.arange(32) < rng.integers(16, 33, (2, 2, 1))
  batch = {'tokens': tokens, 'weights': np.ones((2, 2), np.float32),
           'labels': rng.integers(0, 10, (2, 2)).astype(np.int32),
           'place': np.arange(4, dtype=np.int32).reshape(2, 2)}
  weights = rng.standard_normal((4, 10)).astype(np.float32)
  for name in models():
    c = config(name, 'listops_mini')
    c.encoder.update(width=32, mlp_width=32, num_layers=2, dropout=0.1)
    c.train.update(batch_size=4, microbatch_size=2, eval_batch_size=4)
    c.dtype = 'float32'
    if 'attention_dropout' in c.model:
      c.model.attention_dropout = 0.1
    made = internal('program')(internal('resolve')(c), jax.devices()[:1])
    state, model, objective = made.init(), made.model, made.objective
    own = {'params': state.params, **state.constants}

    def tested(params):
      out = model.apply({**own, 'params': params}, tokens.reshape(4, 32),
                        train=False)
      return (out * weights).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(tested, has_aux=True))(
        state.params)
    trained = jax.jit(lambda state, key: internal('gradient')(
        model, objective, state.params, state.constants, batch, key))(
            state, jax.random.key(1))
    for what, tree in (('start', own), ('outputs', out), ('gradients', grads),
                       ('training', trained)):
      found[f'{name} {what}'] = bits(tree)
    jax.clear_caches()
  return found


def operations(rng):
  """Returns operation -> (its functions' arrays and fixed arguments)."""
  import numpy as np

  def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)

  B, L, H, N = 2, 40, 2, 16
  mask = np.arange(L) < np.array([[L], [L - 11]])
  q, k, v = (draw(B, L, H, N) for _ in range(3))
  heads = {'q': q, 'k': k / 4, 'v': v}
  packed = {'qkv': draw(B, L, 3, H, N), 'bias': draw(3, H, N)}
  gate = -np.abs(draw(B, L, H))
  keep, state = {'mask': mask}, draw(B, H, N, N)
  ids = np.repeat(np.array([[0, 1, 2, -1]], np.int32), 10, 1).repeat(B, 0)
  cut = {'segment_ids': ids, 'num_segments': 3}
  delta = {'mask': mask, 'scale': 0.25, 'return_state': True}
  beta = {'beta': 1 / (1 + np.exp(draw(B, L, H)))}
  return {
      'linear': [('linear_attention', heads, keep),
                 ('linear_attention', heads, keep | {'feature_map': 'relu'}),
                 ('linear_attention', heads, cut),
                 ('linear_attention', heads | {'initial_state': (
                     np.abs(state), np.abs(draw(B, H, N)))},
                  keep | {'return_state': True}),
                 ('linear_attention_packed', packed, keep)],
      'simpletron': [('simpletron_attention', heads, keep),
                     ('simpletron_attention', heads, cut),
                     ('simpletron_attention_packed', packed, keep)],
      'lightning': [('lightning_attention', heads, keep),
                    ('lightning_attention', heads, cut),
                    ('lightning_attention', heads | {'initial_state': state},
                     {'slopes': np.array([0, 0.3], np.float32),
                      'return_state': True}),
                    ('lightning_attention_packed', packed, {
                        'activation': 'silu', 'mask': mask})],
      'softmax': [('softmax_attention', heads, keep),
                  ('softmax_attention', {**heads, 'bias': draw(H, 2 * L - 1)},
                   keep),
                  ('softmax_attention', {**heads, 'k': k[:, :, :1],
                                         'v': v[:, :, :1]}, keep)],
      'norm_project': [('norm_project', {
          'o': draw(B, L, 32), 'weight': draw(32, 24), 'bias': draw(24)}, {})],
      'scan': [('linear_scan', {'x': draw(B, L, 32), 'a': np.exp(
          -np.abs(draw(*shape)))}, {'mask': mask, 'reverse': reverse})
               for shape, reverse in (((32,), False), ((B, L, 32), True))],
      'gated': [('gated_linear_attention', heads | {'log_decay': decay}, {
          'mask': mask, 'reverse': reverse, 'return_state': True})
                for decay, reverse in ((gate, False), (
                    -np.abs(draw(B, L, H, N)), True))],
      'delta': [('delta_rule', heads | beta, delta),
                ('delta_rule', heads | beta | {'log_decay': gate},
                 {'mask': mask, 'reverse': True}),
                ('general_delta_rule', heads | {
                    'a': -0.1 * k, 'b': 0.1 * k, 'log_decay': gate}, delta)]}


def kernels(o):
  """Checks outputs and gradients of kernels that a CPU can run."""
  import jax
  import numpy as np
  room, found = internal('kernels'), {}
  places = {'pallas_tpu': 'tpu', 'splash': 'tpu', 'pallas_triton': 'gpu'}
  for op, calls in operations(np.random.default_rng(0)).items():
    for i, (name, arrays, more) in enumerate(calls):
      for kernel in room.OPS[op]:
        if kernel in ('pallas_gpu', 'cudnn'):
          continue  # a simulator of these GPUs takes minutes, or is missing
        for dtype in ('float32', 'bfloat16')[:1 + (kernel not in places)]:
          found[f'{name} {i} {kernel} {dtype}'] = both(
              getattr(room, name), arrays, {**more, 'kernel': kernel}, dtype,
              room.target(places.get(kernel, 'cpu'), interpret=True))
      found |= reference(room, op, name, i, arrays, more)
  key = jax.random.key(3)
  dropped = {'mask': calls[0][2]['mask'], 'dropout_rate': 0.3,
             'dropout_key': key}
  for kernel in ('dense', 'chunked'):
    found[f'dropout {kernel}'] = both(
        room.softmax_attention, {k: calls[0][1][k] for k in 'qkv'},
        {**dropped, 'kernel': kernel}, 'float32', contextlib.nullcontext())
  found['draw_words'] = bits(room.draw_words(key, 3, (5, 7)))
  return found


def both(function, arrays, more, dtype, place):
  """Returns digests of a function's outputs and gradients."""
  import jax
  import numpy as np
  small = {'q', 'k', 'v', 'a', 'b', 'qkv', 'o', 'x'}  # have the dtype of q
  arrays = {name: np.asarray(x).astype(dtype) if name in small else x
            for name, x in arrays.items()}
  with place:
    try:
      @jax.jit
      def run(arrays):
        out, pull = jax.vjp(lambda a: function(**a, **more), arrays)
        return out, pull(jax.tree.map(
            lambda x: jax.numpy.cos(jax.numpy.arange(
                x.size, dtype='float32')).reshape(x.shape).astype(x.dtype),
            out))
      return ' '.join(map(bits, run(arrays)))
    except NotImplementedError:
      return 'not possible'


def reference(room, op, name, i, arrays, more):
  """Returns the digest of a float64 reference, if the call has one."""
  import numpy as np
  own = importlib.import_module(f'{room.__name__}.{op}.reference')
  plain = {'linear': 'attention', 'simpletron': 'attention',
           'lightning': 'attention', 'softmax': 'attention', 'scan': 'scan',
           'gated': 'attention', 'norm_project': 'norm_project',
           'delta': name}
  skipped = {'segment_ids', 'activation'} & set(more) or 'qkv' in arrays
  if skipped or 'initial_state' in arrays:
    return {}
  given = {n: x for n, x in {**arrays, **more}.items() if n != 'return_state'}
  first = arrays.get('v', arrays.get('x'))
  if op == 'norm_project':
    given['dy'] = np.cos(np.arange(2 * 40 * 24.)).reshape(2, 40, 24)
  else:
    given['dh' if op == 'scan' else 'do'] = np.cos(
        np.arange(arrays.get('q', first).size)).reshape(
            arrays.get('q', first).shape)
  if op == 'lightning':
    given.setdefault('slopes', np.array([0.5, 0.1]))
  return {f'{name} {i} reference': bits(getattr(own, plain[op])(**given))}


def data(o):
  """Checks the content and two batches of data sets made here.

  The mini tasks are prepared anew, and probes are generated. Full tasks are
  left out, since they take too long, and most harder settings of MAD too.
  """
  import functools
  sources = {'text_mini': 'imdb/aclImdb_v1.tar.gz',
             'image_mini': 'cifar10/cifar10_images.tar.gz',
             'retrieval_rfc_mini': 'rfc_citations'}
  made = [task.name for task in internal('tasks').values() if task.probe]
  made += list(internal('harder'))[::10]
  found = {}
  for task in ('listops_mini', 'pathfinder_mini', *sources):
    source = o.sources / sources.get(task, '')
    if not source.exists():
      found[task] = 'no source'
      continue
    done = program(o, 'data', f'--task={task}', *(
        [f'--source={source}'] if task in sources else []))
    found[f'{task} command'] = done.returncode
    made.append(task)
  for task in made:
    content, c = internal('load_data')(task), config('simpletron', task)
    found[task] = content.fingerprint
    objective = internal('resolve')(c).objective
    for step in (0, 7):
      split = content.splits['train']
      found[f'{task} batch {step}'] = bits(internal('train_batch')(
          functools.partial(objective.batch, split), len(split),
          batch_size=c.train.batch_size, microbatch_size=c.train.batch_size,
          seed=0, step=step))
  return found


def copied(o):
  """Returns a copy of the checkout's files, without those that git ignores."""
  listed = subprocess.check_output(
      ['git', 'ls-files', '-coz', '--exclude-standard'], cwd=o.checkout)
  folder = o.scratch / 'copy'
  for name in filter(None, listed.decode().split('\0')):
    if (o.checkout / name).is_file():
      (folder / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy2(o.checkout / name, folder / name)
  return folder


def page(o):
  """Checks the pages and CSV files that a copy of the checkout writes."""
  folder = copied(o)
  env = {**os.environ, 'PYTHONPATH': str(folder)}
  inside = argparse.Namespace(checkout=folder, scratch=folder)
  shown = [folder / 'leaderboard.md', *(folder / 'docs/leaderboard').iterdir()]
  for path in shown:
    path.unlink()
  shutil.copytree(folder / 'lra/results', folder / 'other')
  found = {}
  for name, more in (('board', []), ('board', ['--results_dir=other']),
                     ('studies', [])):
    done = program(inside, *words(folder, name), *more, cwd=folder, env=env)
    found[' '.join([name, *more])] = done.returncode
  for path in (*shown, folder / 'docs/studies.md', *folder.glob('other/*.md'),
               *folder.glob('other/leaderboard/*')):
    found[path.relative_to(folder).as_posix()] = (
        digest(path.read_bytes()) if path.exists() else 'missing')
  script = 'import lra; print(lra.results({!r}, {!r}).to_csv())'
  for each in ('row', 'run'):
    found[f'results {each}'] = digest(subprocess.check_output(
        [sys.executable, '-c', script.format(str(folder / 'lra/results'), each)
         ], cwd=folder, env=env))
  return found


def commands(o):
  """Yields (name, arguments) of commands with good and bad input, in order.

  Of those whose name begins with `=` the output is compared too.
  """
  def of(name, *values):
    return words(o.checkout, name, *values)

  (o.scratch / 'lines.txt').write_text('[MAX 2 9 [MIN 4 7 ] 0 ]\n[SM 1 2 ]\n')
  (o.scratch / 'bad.txt').write_text('[MAX 2 nothing\n')
  (o.scratch / 'bad.json').write_text('{"status": "ok"}')
  (o.scratch / 'own.py').write_text('def get_config(arg):\n  return arg + 1\n')
  (o.scratch / 'sweep.txt').write_text('simpletron:listops_mini seeds=0-1\n')
  (o.scratch / 'bad_sweep.txt').write_text('simpletron:listops_mini seeds=x\n')
  record = min((o.checkout / 'lra/results/runs').rglob('*.json'))
  three = '--config.train.steps=3'
  kept = '--results_dir=results'
  yield from {
      'help': ['--help'], 'nothing': [], '= list': of('list'),
      'a word with a mistake': ['evalute', 'a'],
      'a flag with a mistake': ['--confg=simpletron:listops_mini'],
      'two answers': ['--record', *train('simpletron', 'a')],
      '= fields': [*train('simpletron', 'a'), '--print_config'],
      'train': train('simpletron', 'a', three),
      'again': train('simpletron', 'a', three),
      'other settings': train('simpletron', 'a', '--config.train.steps=4'),
      'recorded': [x for x in train('transformer', 'b', three, kept)
                   if x != '--norecord'],
      'diverges': train('simpletron', 'c', '--config.train.steps=30',
                        '--config.train.learning_rate=1e30'),
      'stops': train('simpletron', 'd', '--max_minutes=0.001'),
      'board': of('board') + [kept],
      'board without records': of('board') + ['--results_dir=nowhere'],
      '= evaluate': of('evaluate', 'a'), '= compare': of('compare', 'a', 'b'),
      '= predict': of('predict', 'lines.txt', 'a'),
      'predict a bad line': of('predict', 'bad.txt', 'a'),
      'predict no file': of('predict', 'nowhere', 'a'),
      'evaluate nothing': of('evaluate', 'nowhere'),
      'evaluate what diverged': of('evaluate', 'c'),
      'compare one': of('compare', 'a'),
      'curves': of('curves', 'x.png', 'a'),
      'curves of nothing': of('curves', 'y.png', 'nowhere'),
      'export': of('export', 'exported', 'a'),
      '= evaluate the export': of('evaluate', 'exported'),
      '= check': of('check', str(record)), 'check bad': of('check', 'bad.json'),
      'check no file': of('check', 'nowhere'),
      'sweep status': of('sweep', 'sweep.txt') + ['--status'],
      'sweep plan': of('sweep', 'sweep.txt') + ['--plan'],
      'sweep bad': of('sweep', 'bad_sweep.txt'),
      'sweep nothing': of('sweep', 'nowhere.txt'),
      'suite nothing': of('suite', 'nowhere'),
      'a bucket': ['--config=simpletron:listops_mini', '--workdir=gs://a/b'],
      'search without space': [*train('simpletron', 'e'), '--search=optuna'],
      'data without task': ['data'], 'data flag': ['data', '--tsk=text'],
      'data source': ['data', '--task=text', '--source=nowhere'],
      'data': ['data', '--task=listops_mini'],
  }.items()
  for said in ('simpletrn:listops_mini', 'simpletron:listops_mni', 'own.py:a',
               'simpletron', 'simpletron:listops,protocol=nystrm'):
    yield said, [f'--config={said}', '--norecord']
  for field in ('train.stepz=3', 'nothing_like=3', 'train.steps=many',
                'train.learning_rate=nan', 'encoder.width=0', 'protocol=lra',
                'model.num_heads=7', 'train.microbatch_size=3',
                'init_from=nowhere', 'train={}', 'model.kernel=pallas_tpu'):
    yield field, [*train('simpletron', 'e'), f'--config.{field}']


def ends(o):
  """Checks exit codes, lines of errors and tracebacks of many commands."""
  found = {}
  for name, arguments in commands(o):
    done = program(o, *map(str, arguments))
    found[name] = (f'code {done.returncode}, {done.stderr.count(chr(10))} '
                   f'lines' + ', a traceback' * ('Traceback' in done.stderr))
    if name.startswith('='):
      found[name] += ' ' + digest(done.stdout.replace(str(o.scratch), ''))
  return found


def stopped_run(model, folder):
  """Returns the arguments of a run that `make-stopped` kills."""
  return train(model, folder, '--config.train.steps=60',
               '--config.train.eval_every=10', '--config.train.batch_size=32',
               '--config.encoder.dropout=0.1', *STOPPED[model])


def make_stopped(o):
  """Trains models and kills each after the checkpoint of step 30."""
  o.stopped.mkdir(parents=True, exist_ok=True)
  for model in STOPPED:
    folder = o.stopped / model
    run = subprocess.Popen([sys.executable, o.checkout / 'run_lra.py',
                            *stopped_run(model, folder)], cwd=o.scratch,
                           stderr=subprocess.DEVNULL)
    while run.poll() is None and not (
        folder / 'checkpoints/last/30/commit_success.txt').exists():
      time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    run.wait()
    steps = sorted(path.name for path in (folder / 'checkpoints/last').iterdir())
    print(f'{model} has the checkpoints {steps}', file=sys.stderr)
    assert not (folder / 'result.json').exists(), 'it ended: run this again'
  return {}


def resume(o):
  """Checks how copies of stopped runs end."""
  found = {}
  for model in STOPPED if o.stopped else ():
    folder = o.scratch / model
    shutil.copytree(o.stopped / model, folder)
    done = program(o, *stopped_run(model, folder))
    found[f'{model} code'] = done.returncode
    found |= {f'{model} {k}': v for k, v in outcome(folder).items()}
  return found


def api(o):
  """Checks `lra` from Python, and a run of two processes."""
  script = ('import sys, time; t = time.process_time(); import lra; '
            't = time.process_time() - t; print(t < 0.05, *sorted('
            '{m.split(".")[0] for m in sys.modules}))')
  quick, *loaded = subprocess.check_output(
      [sys.executable, '-c', script], text=True).split()
  found = {'import takes less than 50 ms': quick,
           'import loads': ' '.join(sorted({*loaded} & {*HEAVY}))}
  import lra
  for folder in sorted((o.checkout / 'lra/examples/models').iterdir()):
    said = lra.load(folder).predict(
        ['[MAX 2 9 [MIN 4 7 ] 0 ]', '[SM 1 2 ]', '[MED 1 [MIN 3 3 ] 8 9 ]'])
    found[folder.name] = digest(b''.join(
        p.name.encode() + p.probabilities.tobytes() for p in said))
  for each in ('row', 'run'):
    table = lra.results(o.checkout / 'lra/results', each)
    found[f'results {each}'] = f'{table.shape} {digest(table.to_csv())}'
    found[f'columns {each}'] = ' '.join(table.columns)
  program(o, 'data', '--task=listops_mini')
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  folder = o.scratch / 'two'
  both = [subprocess.Popen(
      [sys.executable, o.checkout / 'run_lra.py', '--distributed',
       f'--coordinator=127.0.0.1:{port}', '--num_processes=2',
       f'--process_id={i}', *train('simpletron', folder,
                                   '--config.train.steps=6')],
      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in (0, 1)]
  found['two codes'] = [run.wait() for run in both]
  return found | {f'two {k}': v for k, v in outcome(folder).items()}


PARTS = {part.__name__: part for part in (
    records, configs, mixers, kernels, data, page, ends, resume, api)}


def run_part(o, name):
  """Runs a part in a process of its own; returns its content."""
  with tempfile.TemporaryDirectory() as folder:
    scratch = pathlib.Path(folder).resolve()
    command = [sys.executable, '-P', __file__, '_part', scratch, '--parts', name,
               '--checkout', o.checkout, '--sources', o.sources]
    command += ['--stopped', o.stopped] if o.stopped else []
    start = time.monotonic()
    subprocess.run(command, cwd=o.checkout, check=True,
                   env=environment(o.checkout, scratch))
    print(f'{name}: {time.monotonic() - start:.0f} s', file=sys.stderr)
    return json.loads((scratch / 'part.json').read_text())


def compare(before, after):
  """Prints the differences of two snapshots; returns 1 if there are any."""
  old, new = (json.loads(path.read_text()) for path in (before, after))
  lines = [f'{part}: {name}: {x!r} -> {y!r}'
           for part in sorted({*old} & {*new})
           for name in sorted({*old[part]} | {*new[part]})
           for x, y in [(old[part].get(name), new[part].get(name))] if x != y]
  missing = [f'{part}: only in one snapshot' for part in {*old} ^ {*new}]
  print('\n'.join(lines + sorted(missing) or ['equal']))
  return int(bool(lines))


def arguments():
  """Returns the parsed arguments, with absolute paths."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  actions = parser.add_subparsers(dest='action', required=True)
  said = actions.add_parser('compare')
  said.add_argument('before', type=pathlib.Path)
  said.add_argument('after', type=pathlib.Path)
  for action, first in (('snapshot', 'out'), ('make-stopped', 'stopped'),
                        ('_part', 'scratch')):
    said = actions.add_parser(action)
    said.add_argument(first, type=pathlib.Path)
    said.add_argument('--checkout', type=pathlib.Path, help='today: this one',
                      default=pathlib.Path(__file__).parents[1])
    said.add_argument('--sources', type=pathlib.Path,
                      help='raw data; by default shared/data beside a checkout')
    said.add_argument('--parts', default=','.join(PARTS), help='%(default)s')
    if first != 'stopped':
      said.add_argument('--stopped', type=pathlib.Path,
                        help='stopped runs, for the part resume')
  o = parser.parse_args()
  for name, value in vars(o).items():
    if isinstance(value, pathlib.Path):
      setattr(o, name, value.resolve())
  if o.action != 'compare':
    o.sources = o.sources or o.checkout.parent / 'shared/data'
  return o


def main():
  """Runs the chosen action; returns the exit code."""
  o = arguments()
  if o.action == 'compare':
    return compare(o.before, o.after)
  if o.action == '_part':
    import lra
    assert pathlib.Path(lra.__file__).is_relative_to(o.checkout), lra.__file__
    made = (PARTS | {'make_stopped': make_stopped})[o.parts](o)
    (o.scratch / 'part.json').write_text(json.dumps(made))
  elif o.action == 'make-stopped':
    run_part(o, 'make_stopped')
  else:
    found = {part: run_part(o, part) for part in o.parts.split(',')}
    o.out.write_text(json.dumps(found, indent=1) + '\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
