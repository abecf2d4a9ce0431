"""Takes snapshots of what users of a checkout see, and compares them.

  python tests/equality.py make-stopped DIR
  python tests/equality.py snapshot A.json --stopped DIR --sources shared/data
  python tests/equality.py compare A.json B.json

Take both snapshots on one machine, with one environment: they hold digests of
exact bits. Only INTERNALS, WORDS and `internal` know the code's own names.
`equality_inside.py` has the parts that call the code in their own process.
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

# What is used of the code: name -> its places, the newest first.
INTERNALS = {
    'configs': 'lra.configs configs', 'kernels': 'lra.kernels kernels',
    'protocols': 'lra.configs.protocols:PROTOCOLS configs.protocols:PROTOCOLS',
    'tasks': 'lra.core.tasks:TASKS lra.tasks:TASKS',
    'harder': 'lra.core.tasks:HARDER lra.tasks:HARDER',
    'config_hash':
        'lra.schema.identity:config_hash lra.config.identity:config_hash',
    'run_folder':
        'lra.schema.identity:run_folder lra.config.identity:run_folder',
    'read_result': 'lra.schema.result:read lra.records.result:read',
    'resolve': 'lra.run.experiment:resolve lra.experiment.experiment:resolve',
    'program': 'lra.run.program:make lra.training.program:make',
    'gradient': 'lra.run.step:batch_gradient lra.training.step:batch_gradient',
    'load_data': 'lra.data.prepared:load',
    'train_batch': 'lra.data.batches:train_batch'}
# Words of commands: in a new checkout, in an old one. Other words are in both.
WORDS = {'board': ('board', 'leaderboard'), 'sweep': ('runs', 'sweep'),
         'studies': ('board --studies', 'studies'), 'suite': ('runs', 'suite'),
         'check': ('board --check', 'check_record')}
# One thread, and quick to compile. From 0.11 on, JAX refuses the last flag.
FLAGS = ('--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0'
         ' --xla_cpu_parallel_codegen_split_count=1') + (
             metadata.version('jax') < '0.11') * (
                 ' --xla_cpu_use_fusion_emitters=false')
TINY = ('encoder.width=16 encoder.num_layers=1 encoder.mlp_width=16 '
        'model.num_heads=2 train.batch_size=8 train.eval_every=3').split()
# Runs that are stopped and resumed: model -> fields.
STOPPED = dict.fromkeys(('simpletron', 'mamba2', 'transformer'), (
    'train.steps=60 train.eval_every=10 train.batch_size=32 '
    'train.microbatch_size=8 encoder.dropout=0.1').split())
# Fields of a result that are measured, or name a version of the code.
MEASURED = '.*(seconds|per_s|bytes)|git_.*|(model|config)_sha256|runs_at_once'
HEAVY = set('jax flax numpy pandas absl ml_collections orbax pydantic '
            'matplotlib tensorflow_datasets optax jinja2 yaml'.split())
# Commands with good and bad input, in order. After = the output counts too.
# `train DIR FIELDS` is a small run; other words are those of WORDS.
COMMANDS = '''data --task=listops_mini | --help | | = list | evalute a | data
--confg=simpletron:listops_mini | data --tsk=text | --config=simpletron
data --task=text --source=nowhere | --config=simpletron:listops_mini --bad
--config=simpletrn:listops_mini | --config=simpletron:listops_mni
--config=own.py:a | --config=nowhere.py:listops | --config=lines.txt
--config=simpletron:listops,protocol=nystrm | train a train.steps=3
train a train.steps=3 | train a train.steps=4 | train a --record
= train a --print_config | train c train.steps=30 train.learning_rate=1e30
train d --max_minutes=0.001 | record b train.steps=3 | record b train.steps=3
board --results_dir=results | board --results_dir=nowhere | = evaluate a
= compare a b | = predict lines.txt a | predict bad.txt a | predict nowhere a
evaluate nowhere | evaluate c | evaluate | compare a | curves x.png a
curves y.png nowhere | export exported a | = evaluate exported | = check RECORD
check bad.json | check nowhere | sweep sweep.txt --status | suite nowhere
sweep sweep.txt --plan | sweep bad.txt | sweep nowhere | sweep
--config=simpletron:listops_mini --workdir=gs://a/b | train e --search=optuna
train e train.stepz=3 | train e nothing_like=3 | train e train.steps=many
train e train.learning_rate=nan | train e encoder.width=0 | train e train={}
train e model.num_heads=7 | train e train.microbatch_size=3
train e init_from=nowhere | train e model.kernel=pallas_tpu
train e protocol=lra | train e model.name=nobody | train e seed=-1'''
FILES = {'lines.txt': '[MAX 2 9 [MIN 4 7 ] 0 ]\n[SM 1 2 ]\n', 'bad.txt': '[MAX',
         'own.py': 'def get_config(arg):\n  return 1 / 0\n', 'bad.json': '{}',
         'sweep.txt': 'simpletron:listops_mini seeds=0-1\n'}


def internal(name):
  """Returns a module or an object of the code by its name in INTERNALS."""
  for place in INTERNALS[name].split():
    module, _, attribute = place.partition(':')
    with contextlib.suppress(ModuleNotFoundError):
      found = importlib.import_module(module)
      return getattr(found, attribute) if attribute else found
  raise ModuleNotFoundError(f'{name}: none of {INTERNALS[name]}')


def digest(value):
  """Returns a short SHA-256 of bytes, a text or a JSON value."""
  if not isinstance(value, (bytes, str)):
    value = json.dumps(value, sort_keys=True, default=list)
  data = value if isinstance(value, bytes) else value.encode()
  return hashlib.sha256(data).hexdigest()[:16]


def inside():
  """Returns the module with the parts that call the code in this process."""
  sys.path.append(str(pathlib.Path(__file__).parent))  # after the checkout
  return importlib.import_module('equality_inside')


def run(o, *arguments, **more):
  """Runs run_lra.py of the checkout; returns the finished process."""
  return subprocess.run(
      [sys.executable, o.checkout / 'run_lra.py', *arguments], text=True,
      capture_output=True, stdin=subprocess.DEVNULL, errors='replace',
      cwd=o.scratch, **more)


def words(o, line):
  """Returns the arguments of a line of COMMANDS for the checkout."""
  first, *rest = [*line.split(), ''][:len(line.split()) or 1]
  if first in WORDS:
    old = not (o.checkout / 'lra/cli/runs.py').exists()
    return [*WORDS[first][old].split(), *rest]
  if first not in ('train', 'record'):
    return [first, *rest] if first else []
  folder, *rest = rest
  fields = [f'--config.{field}' for field in TINY + [
      field for field in rest if not field.startswith('--')]]
  kept = ['--norecord'] if first == 'train' else ['--record']
  return [f'--config={o.model}:listops_mini', *kept, f'--workdir={folder}',
          '--compile_cache=', *fields, '--results_dir=results', *(
              flag for flag in rest if flag.startswith('--'))]


def outcome(folder):
  """Returns digests of the result, metrics and parameters of a run."""
  import lra
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  kept = [{k: v for k, v in json.loads(text).items()
           if not re.fullmatch(MEASURED, k)}
          for text in ((folder / 'result.json').read_text(), *lines)]
  return {'result': digest(kept[0]), 'metrics': digest(kept[1:]),
          'tested': inside().bits(lra.load(folder).params),
          'last': inside().bits(lra.load(folder / 'checkpoints/last').params)}


def page(o):
  """Page: pages and CSV files that a copy of the checkout writes."""
  listed = subprocess.check_output(
      ['git', 'ls-files', '-co', '--exclude-standard'], cwd=o.checkout)
  folder, found = o.scratch / 'copy', {}
  for name in listed.decode().splitlines():
    if (o.checkout / name).exists():  # a file, or a link to a folder
      (folder / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy2(o.checkout / name, folder / name, follow_symlinks=False)
  shown = [folder / 'leaderboard.md', *(folder / 'docs/leaderboard').iterdir()]
  for path in shown:
    path.unlink()
  copy = argparse.Namespace(checkout=folder, scratch=folder)
  env = {**os.environ, 'PYTHONPATH': str(folder)}
  for line in ('board', 'studies'):
    found[line] = run(copy, *words(copy, line), env=env).returncode
  return found | {
      str(path.relative_to(folder)): path.exists() and digest(path.read_bytes())
      for path in (*shown, folder / 'docs/studies.md')}


def ends(o):
  """Ends: exit codes, lines of errors and tracebacks of many commands."""
  found, seen = {}, []
  for name, text in FILES.items():
    (o.scratch / name).write_text(text)
  record = min((o.checkout / 'lra/results/runs').rglob('*.json'))
  for line in re.split(r'\n| ?\| ?', COMMANDS):
    compared, seen = line.startswith('= '), [*seen, line]
    done = run(o, *words(o, line.removeprefix('= ').replace(
        'RECORD', str(record))))
    found[f'{line} ({seen.count(line)})'] = ' '.join((
        f'{done.returncode}, {len(done.stderr.splitlines())} lines'
        if done.returncode else '0',
        'a traceback' * ('Traceback' in done.stderr),
        digest(done.stdout.replace(str(o.scratch), '').replace(
            str(o.checkout), '')) if compared else ''))
  return found


def stopped(o, model, folder):
  """Returns the command of a run that `make_stopped` kills."""
  o.model = model
  return words(o, f'train {folder} {" ".join(STOPPED[model])}')


def make_stopped(o):
  """Trains models and kills each after the checkpoint of step 30."""
  for model in STOPPED:
    folder = o.stopped / model
    process = subprocess.Popen(
        [sys.executable, o.checkout / 'run_lra.py', *stopped(o, model, folder)],
        cwd=o.scratch, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (
        folder / 'checkpoints/last/30/commit_success.txt').exists():
      time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / 'result.json').exists(), 'it ended: do this again'


def resume(o):
  """Resume: how copies of stopped runs end."""
  found = {}
  for model in STOPPED if o.stopped else ():
    folder = o.scratch / model
    shutil.copytree(o.stopped / model, folder)
    found[f'{model} code'] = run(o, *stopped(o, model, folder)).returncode
    found |= {f'{model} {k}': v for k, v in outcome(folder).items()}
  return found


def api(o):
  """API: `lra` from Python, and a run of two processes."""
  loaded = subprocess.check_output([sys.executable, '-c', (
      'import sys, time; t = time.process_time(); import lra; print('
      'time.process_time() - t < 0.05, *{m.split(".")[0] for m in sys.modules})'
  )], text=True).split()
  found = {'import lra': f'{loaded[0]} {sorted(HEAVY & {*loaded})}'}
  import lra
  for folder in sorted((o.checkout / 'lra/examples/models').iterdir()):
    found[folder.name] = digest(b''.join(
        p.name.encode() + p.probabilities.tobytes()
        for p in lra.load(folder).predict(
            ['[MAX 2 9 [MIN 4 7 ] 0 ]', '[SM 1 2 ]', '[MED 1 3 8 9 ]'])))
  for each in ('row', 'run'):
    table = lra.results(o.checkout / 'lra/results', each)
    found[f'results {each}'] = (
        f'{table.shape} {digest(table.to_csv())} {" ".join(table.columns)}')
  run(o, 'data', '--task=listops_mini')
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  line = (f'train two train.steps=6 --distributed --num_processes=2 '
          f'--coordinator=127.0.0.1:{port} --process_id=')
  processes = [subprocess.Popen(
      [sys.executable, o.checkout / 'run_lra.py', *words(o, line + i)],
      cwd=o.scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for i in '01']
  found['two codes'] = [process.wait() for process in processes]
  return found | {f'two {k}': v
                  for k, v in outcome(o.scratch / 'two').items()}


HERE = {part.__name__: part for part in (page, ends, resume, api, make_stopped)}
PARTS = ('records', 'configs', 'mixers', 'kernels', 'data', 'pathfinder',
         *HERE)[:-1]


def run_part(o, name):
  """Runs a part in a process and a folder of its own; returns its content."""
  start = time.monotonic()
  with tempfile.TemporaryDirectory() as folder:
    scratch, old = pathlib.Path(folder).resolve(), os.environ.items()
    env = {k: v for k, v in old if not k.startswith(('JAX', 'XLA', 'PYTHON'))}
    subprocess.run(
        [sys.executable, '-P', __file__, '_part', scratch, '--parts', name,
         '--checkout', o.checkout, '--sources', o.sources, *(
             f'--{name}={getattr(o, name)}' for name in ('stopped', 'cache')
             if getattr(o, name))],
        cwd=o.checkout, check=True, env=env | {
            'PYTHONPATH': str(o.checkout), 'PYTHONHASHSEED': '0',
            'PYTHONPYCACHEPREFIX': str(scratch / 'pyc'),
            'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': FLAGS, 'OMP_NUM_THREADS': '1',
            'OPENBLAS_NUM_THREADS': '1', 'TF_CPP_MIN_LOG_LEVEL': '3',
            'TFDS_DATA_DIR': str(scratch / 'data'), 'TPU_SKIP_MDS_QUERY': '1'})
    print(f'{name}: {time.monotonic() - start:.0f} s', file=sys.stderr)
    return json.loads((scratch / 'part.json').read_text())


def compare(before, after):
  """Prints the differences of two snapshots; returns 1 if there are any."""
  old, new = (json.loads(path.read_text()) for path in (before, after))
  lines = [f'{part}: {name}: {x} -> {y}' for part in {**old, **new}
           for a, b in [(old.get(part), new.get(part))] if a and b
           for name in {**a, **b}
           for x, y in [(a.get(name), b.get(name))] if x != y]
  print('\n'.join(lines) or f'equal: {", ".join(k for k in old if k in new)}')
  return int(bool(lines))


def main():
  """Runs the chosen action; returns the exit code."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('action', choices=(
      'snapshot', 'compare', 'make-stopped', '_part'))
  parser.add_argument('paths', nargs='+', type=pathlib.Path)
  parser.add_argument('--checkout', type=pathlib.Path, help='the code to run',
                      default=pathlib.Path(__file__).parents[1])
  parser.add_argument('--parts', default=','.join(PARTS))
  parser.add_argument('--sources', type=pathlib.Path, help='raw data',
                      default=pathlib.Path('shared/data'))
  parser.add_argument('--stopped', type=pathlib.Path, help='of make-stopped')
  parser.add_argument('--cache', type=pathlib.Path,
                      help='keeps compiled programs of mixers and kernels')
  o = parser.parse_args()
  for name, path in vars(o).items():
    setattr(o, name, path.resolve() if isinstance(path, pathlib.Path) else path)
  o.scratch, o.model = o.paths[0].resolve(), 'simpletron'
  if o.action == 'compare':
    return compare(*o.paths)
  if o.action == 'make-stopped':
    o.stopped = o.scratch
    run_part(o, 'make_stopped')
  elif o.action == '_part':
    import lra
    assert pathlib.Path(lra.__file__).is_relative_to(o.checkout), lra.__file__
    (o.scratch / 'part.json').write_text(json.dumps(
        (HERE.get(o.parts) or getattr(inside(), o.parts))(o)))
  else:
    found = {part: run_part(o, part) for part in o.parts.split(',')}
    o.scratch.write_text(json.dumps(found, indent=1) + '\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
