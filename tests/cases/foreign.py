"""Inputs from foreign files, and models that are taken home.

PYTHONPATH=CLONE python tests/cases/foreign.py CLONE [WORD]
"""

import importlib
import json
import os
import pathlib
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
LONGEST = 60


class Tree:
  """A checkout: forks a process with everything imported for each case."""

  def __init__(self, root):
    self.root = root
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')
    sys.path.insert(0, str(root))
    importlib.import_module('lra.cli.main')
    self.new = (root / 'lra' / 'core').exists()
    for room in ('lra.cli', 'lra.share', 'lra.run', 'lra.many', 'lra.schema',
                 'lra.data_prep', 'lra.board', 'lra.training', 'lra.sweeps',
                 'lra.records', 'lra.report', 'data_prep'):
      try:
        package = importlib.import_module(room)
      except ImportError:
        continue
      for module in pkgutil.iter_modules(package.__path__, f'{room}.'):
        if 'linear' not in module.name and '__main__' not in module.name:
          try:
            importlib.import_module(module.name)
          except Exception:
            pass

  def run(self, do, folder, **environment):
    """Runs a list of arguments, or a function; returns (rc, out, err, s)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
      start = time.monotonic()
      child = os.fork()
      if not child:
        os.setsid()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self._become(do, folder, environment)
      while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
          rc = os.waitstatus_to_exitcode(status)
          break
        if time.monotonic() - start > LONGEST:
          os.killpg(child, signal.SIGKILL)
          os.waitpid(child, 0)
          rc = 'hang'
          break
        time.sleep(0.02)
      texts = []
      for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read().decode(errors='replace'))
      return rc, *texts, time.monotonic() - start

  def _become(self, do, folder, environment):
    code = 1
    try:
      os.chdir(folder)
      os.environ.update(environment)
      if callable(do):
        from lra import load  # noqa: F401
        try:
          print(repr(do())[:300])
          code = 0
        except Exception as e:
          if type(e).__name__ in ('UserError', 'NoExample', 'InvalidRecord'):
            print(f'error: {e}', file=sys.stderr)
            code = 2
          else:
            raise
      else:
        sys.argv = ['run_lra.py', *do]
        importlib.import_module('lra.cli.main').run()
    except SystemExit as e:
      code = e.code or 0
    except BaseException:
      traceback.print_exc()
    finally:
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(code)


def verdict(rc, out, err):
  """Returns what happened, in one line."""
  lines = [x for x in err.splitlines() if x.strip()] or ['']
  if 'Traceback' in err:
    return f'TRACEBACK {lines[-1][:150]}'
  if rc == 'hang':
    return f'HANG over {LONGEST} s'
  said = next((x for x in lines if x.startswith('error: ')), lines[-1])
  return f'rc {rc}: {(said if rc else out.strip().splitlines()[-1:] or said)}'[
      :260]


def example(tree, folder, name='listops_mini_simpletron'):
  place = folder / 'model'
  if not place.exists():
    shutil.copytree(tree.root / 'lra/examples/models' / name, place)
  return place


def weights(header, data=b''):
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  return len(text).to_bytes(8, 'little') + text + data


def bert(folder, tree, **changes):
  sys.path.insert(0, str(tree.root))
  from tests.helpers import tiny_bert
  return tiny_bert.write(folder / 'bert', **changes)


BERT = ['--config=configs/transformer.py:ag_news,protocol=bert',
        '--config.encoder.num_layers=2', '--config.encoder.width=32',
        '--config.encoder.mlp_width=48', '--config.encoder.vocab_size=64',
        '--config.encoder.max_positions=40', '--config.model.num_heads=2',
        '--config.seq_len=24', '--config.init_from=bert', '--norecord']
SEARCH = ['--config=configs/simpletron.py:listops_mini', '--search=optuna',
          '--trials=1', '--norecord', '--compile_cache=',
          '--config.train.steps=1', '--config.encoder.width=16']


def read_bert(tree):
  """Reads the weights in bert/ as a run with init_from does."""
  module = importlib.import_module(
      'lra.run.bert' if tree.new else 'lra.experiment.bert')
  return lambda: {k: v.shape for k, v in module.tensors(
      pathlib.Path('bert')).items()}


def torch_case(make):
  def run(tree, folder):
    module = importlib.import_module(
        'lra.share.torch_weights' if tree.new else 'lra.torch_weights')
    import numpy as np

    def do():
      import jax
      import torch

      from lra.models import transformer
      mixer = transformer.Mixer(num_heads=2, qkv_width=8)
      x, mask = np.zeros((1, 4, 6), np.float32), np.ones((1, 4), bool)
      like = jax.eval_shape(lambda: mixer.init(
          jax.random.key(0), x, mask, train=False))['params']
      state = {'in_proj_weight': torch.zeros(24, 6),
               'in_proj_bias': torch.zeros(24),
               'out_proj.weight': make(torch), 'out_proj.bias': torch.zeros(6)}
      return sorted(module.params('transformer', 'torch', state, like))
    return do
  return run


def toml(text, *more):
  def run(tree, folder):
    (folder / 'a.toml').write_bytes(
        text if isinstance(text, bytes) else text.encode())
    return (['runs', 'a.toml', '--status', *more] if tree.new else
            ['--sweep=a.toml', '--status'])
  return run


def damaged(name, content, word='evaluate'):
  def run(tree, folder):
    place = example(tree, folder)
    (place / name).write_bytes(
        content(place) if callable(content) else content)
    return [word, 'model']
  return run


def bert_file(content):
  def run(tree, folder):
    (bert(folder, tree) / 'model.safetensors').write_bytes(content)
    return read_bert(tree)
  return run


def bert_array(value):
  def run(tree, folder):
    from tests.helpers import tiny_bert
    sys.path.insert(0, str(tree.root))
    import numpy as np
    found = tiny_bert.tensors()
    found['bert.pooler.dense.bias'] = np.full(32, value)
    tiny_bert.write(folder / 'bert', found)
    return read_bert(tree)
  return run


def space(text):
  return lambda tree, folder: [*SEARCH, f'--space={text}']


def predicted(tree, folder):
  example(tree, folder)
  (folder / 'x.txt').write_text('[MAX 2\x1c 9 ]\n')
  return ['predict', 'x.txt', 'model'] if tree.new else [
      '--predict=x.txt', 'model']


def ag_news(tree, folder):
  (folder / 'source').mkdir()
  for split in ('train', 'test'):
    (folder / f'source/{split}.csv').write_text(
        f'"1","a","{"b" * 200_000}"\n')
  return ['data', '--task=ag_news', '--source=source', '--data_dir=d']


def nan_id(tree, folder):
  place = example(tree, folder)

  def do():
    sys.path.insert(0, str(tree.root))
    import jax
    import numpy as np
    from safetensors.numpy import load_file

    import lra
    model = lra.load(place)
    stable = importlib.import_module(
        'lra.share.stablehlo' if tree.new else 'lra.training.stablehlo')
    made, _ = stable.forward(
        model.program, {'params': model.params, 'constants': model.constants})
    forward = jax.export.deserialize(bytearray(made))
    said = []
    for wrong in (16, 300, -1):
      tokens = np.ones((1, 32), np.int16)
      tokens[0, 3] = wrong
      found = forward.call(load_file(place / 'model.safetensors'), tokens)
      said.append(f'{wrong}: {"nan" if np.isnan(found).all() else "number"}')
    return said
  return do


def exported(tree, folder):
  place = example(tree, folder)

  def do():
    module = importlib.import_module(
        'lra.cli.export' if tree.new else 'lra.cli.exporting')
    module.export(folder / 'out', place)
    card = (folder / 'out/README.md').read_text()
    return sorted(p.name for p in (folder / 'out').iterdir()), (
        'ids' in card and 'NaN' in card)
  return do


def own_task(tree, folder):
  place = example(tree, folder)
  if tree.new:
    from lra.core import tasks
    if hasattr(tasks, 'description'):
      (place / 'task.json').write_text(json.dumps(tasks.description(
          tasks.get('listops_mini')) | {'classes': list('0123456789')}))
  for name in ('config.json', 'result.json', 'task.json'):
    if (place / name).exists():
      (place / name).write_text((place / name).read_text().replace(
          '"listops_mini"', '"mine"'))

  def do():
    import lra
    # The bytes of an own task are codes: [MAX 2 9 ].
    text = '\x0b\x02\x09\x0e' if tree.new else '[MAX 2 9 ]'
    return lra.load(place).predict([text])[0].name
  return do


def few_pieces(tree, folder):
  """A vocabulary may have fewer word pieces than there are bytes."""
  bert(folder, tree)

  def do():
    import numpy as np

    from lra.run import experiment, loader, program
    from lra.share import api
    made = experiment.resolve(loader.made_by([
        *(x for x in BERT[:-1] if 'init_from' not in x),
        '--config.tokenizer=bert']))
    model, seen = api.Trained(program.make(made), None, None, 0), []
    api.Trained._probabilities = lambda self, split: (
        seen.append(split) or np.ones((len(split), 4)))
    model.predict(['the cat ' * 30, 'cat'])
    return [int(x) for x in seen[0].offsets]
  return do


def hub_patterns(tree, folder):
  def do():
    import huggingface_hub
    asked = []
    huggingface_hub.snapshot_download = lambda *_, allow_patterns, **__: (
        asked.append(allow_patterns) or '.')
    hub = importlib.import_module(
        'lra.share.hub' if tree.new else 'lra.system.hub')
    hub.place('hf:a/b')
    return asked
  return do


def call(text):
  return lambda tree, folder: lambda: eval(text, {'lra': __import__('lra')})


DEEP = b'[' * 100_000
F8 = weights({'x': {'dtype': 'F8_E4M3', 'shape': [2], 'data_offsets': [0, 2]}},
             b'\0\0')
BF16 = weights({'x': {'dtype': 'BF16', 'shape': [1], 'data_offsets': [0, 2]}},
               b'\0\0')
ENTRY = '[[runs]]\nmodels=["simpletron"]\ntasks=["listops_mini"]\n'
CASES = {
    'json-deep': damaged('config.json', DEEP),
    'metadata-deep': damaged('model.safetensors', weights(
        {'__metadata__': {'lra': '[' * 100_000}})),
    'weights-f8': damaged('model.safetensors', F8),
    'weights-bf16': damaged('model.safetensors', BF16),
    'toml-deep': toml(b'a = ' + DEEP),
    'toml-keys-deep': toml(ENTRY + f'set.{".".join("a" * 5000)} = 1'),
    'toml-bom': toml('\ufeff' + ENTRY),
    'toml-search-data_dir': toml(ENTRY + 'search.data_dir = ["a", "b"]'),
    'toml-nested-value': toml(
        ENTRY + 'search.train.learning_rate = [1.0, [2.0]]'),
    'toml-nul': toml(ENTRY + 'set.data_dir = "a\\u0000b"'),
    'models-empty': toml(ENTRY, '--models='),
    'models-comma': toml(ENTRY, '--models=,'),
    'toml-models-empty': toml('[[runs]]\nmodels=[]\ntasks=["listops_mini"]'),
    'bert-f8': bert_file(F8), 'bert-bf16': bert_file(BF16),
    'bert-nan': bert_array(float('nan')),
    'bert-inf': bert_array(float('inf')),
    'bert-1e300': bert_array(1e300), 'bert-complex': bert_array(__import__("numpy").complex64(1j)),
    'torch-empty': torch_case(lambda torch: torch.zeros(0)),
    'torch-empty2': torch_case(lambda torch: torch.zeros(0, 8)),
    'torch-bf16': torch_case(lambda torch: torch.zeros(6, 8).bfloat16()),
    'torch-f8': torch_case(
        lambda torch: torch.zeros(6, 8).to(torch.float8_e5m2)),
    'torch-sparse': torch_case(lambda torch: torch.zeros(6, 8).to_sparse()),
    'torch-meta': torch_case(lambda torch: torch.zeros(6, 8, device='meta')),
    'torch-grad': torch_case(
        lambda torch: torch.zeros(6, 8, requires_grad=True)),
    'torch-nan': torch_case(lambda torch: torch.zeros(6, 8) / 0),
    'uniform-1e308': space('train.learning_rate=uniform(-1e308,1e308)'),
    'int-10^400': space(f'train.steps=int(1,1{"0" * 400})'),
    'space-[1,[2]]': space('train.learning_rate=[1,[2]]'),
    'space-data_dir': space('data_dir=[a,b]'),
    'csv-long': ag_news,
    'escape': predicted,
    'load-nul': call("lra.load('a\\0b')"),
    'load-none': call('lra.load(None)'),
    'results-nul': call("lra.results('a\\0b')"),
    'hub': hub_patterns, 'nan-id': nan_id, 'export': exported,
    'own-task': own_task, 'few-pieces': few_pieces,
}


def run_all(tree, cases, chosen=''):
  for name, make in cases.items():
    if chosen not in name:
      continue
    with tempfile.TemporaryDirectory() as place:
      folder = pathlib.Path(place)
      (folder / 'configs').symlink_to(tree.root / 'configs')
      rc, out, err, seconds = tree.run(make(tree, folder), folder)
    print(f'{name:26} {verdict(rc, out, err)!a}  ({seconds:.0f} s)', flush=True)


def locale(tree):
  """The path has a letter beyond ASCII, and the locale is ASCII."""
  import subprocess
  done = subprocess.run(
      [sys.executable, str(tree.root / 'run_lra.py'),
       '--config=configs/simpletron.py:listops_mini', '--workdir=\u00e9'],
      cwd=tree.root, capture_output=True, check=False, env={
          **os.environ, 'PYTHONUTF8': '0', 'PYTHONCOERCECLOCALE': '0',
          'LC_ALL': 'POSIX'})
  print(f'{"C-locale":26} rc {done.returncode}: {done.stderr[-200:]!a}')


if __name__ == '__main__':
  tree = Tree(ROOT)
  run_all(tree, CASES, ''.join(sys.argv[2:3]))
  if not sys.argv[2:]:
    locale(tree)
