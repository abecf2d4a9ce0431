"""Cases of silent losses, and of one bad member that ended the whole.

  PYTHONPATH=CLONE python tests/cases/losses.py CLONE [WORD]

Prints a line per case: its id, and what happened. CLONE is a checkout, before
or after the mends. With WORD, only cases whose id has it are run.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(sys.argv[1]).resolve()
WORD = sys.argv[2] if len(sys.argv) > 2 else ''
NEW = (ROOT / 'lra/core').exists()
SMALL = {
    'seq_len': 24, 'encoder.num_layers': 1, 'encoder.width': 16,
    'encoder.mlp_width': 16, 'model.qkv_width': 16, 'model.num_heads': 2,
    'train.batch_size': 4, 'train.microbatch_size': 4,
    'train.eval_batch_size': 50, 'train.steps': 4, 'train.eval_every': 2,
    'train.log_every': 1, 'train.warmup_steps': 0}
HOME = pathlib.Path(tempfile.mkdtemp())
ENV = {**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu',
       'TFDS_DATA_DIR': str(HOME / 'data'), 'HOME': str(HOME),
       'XLA_FLAGS': '--xla_backend_optimization_level=0'}
CASES = []


def case(function):
  CASES.append(function)
  return function


def python(code, *args, cwd=None, wait=True):
  process = subprocess.Popen(
      [sys.executable, '-c', code, *map(str, args)], cwd=cwd or HOME, env=ENV,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  return ended(process) if wait else process


def ended(process):
  out, err = process.communicate(timeout=900)
  return process.returncode, out, err


def lra(*args, cwd=None, wait=True):
  code = ('import sys, runpy; sys.argv[0] = sys.argv.pop(1); '
          'runpy.run_path(sys.argv[0], run_name="__main__")')
  return python(code, ROOT / 'run_lra.py', *args, cwd=cwd, wait=wait)


def flags(**changes):
  changes = {name.replace('__', '.'): x for name, x in changes.items()}
  return [f'--config.{name}={value}'
          for name, value in (SMALL | changes).items() if value is not None]


def train(folder, *more, model='simpletron', wait=True, cwd=None, task=(
    'listops_mini'), **changes):
  return lra(f'--config={ROOT}/configs/{model}.py:{task}', '--norecord',
             *([f'--workdir={folder}'] if folder else []), *more,
             *flags(**changes), wait=wait, cwd=cwd)


def told(result):
  """Returns the exit code and the last line, shortened."""
  code, out, err = result
  last = ([''] + [x for x in (err + out).splitlines() if x.strip()])[-1]
  if 'Traceback' in err:
    last = f'TRACEBACK {err.strip().splitlines()[-1]}'
  return f'rc {code}, {last[:150]}'


def first_loss(folder):
  point = json.loads((folder / 'metrics.jsonl').read_text().splitlines()[0])
  return round(point['loss'], 5)


def killed(process, condition):
  while process.poll() is None and not condition():
    time.sleep(0.002)
  process.kill()
  process.communicate()


_base = {}


def base():
  """Returns the folder of a finished run, trained once."""
  if not _base:
    _base[0] = HOME / 'base'
    code, _, err = train(_base[0], train__steps=40, train__learning_rate=0.1)
    assert code == 0, err
  return _base[0]


_FIRST_SAVE = """
import os, sys
sys.path.insert(0, {root!r})
import orbax.checkpoint as ocp
save = ocp.CheckpointManager.save
def killed(self, step, *a, **k):
  if self.directory.name == 'last':
    (self.directory / f'{{step}}.orbax-checkpoint-tmp').mkdir(parents=True)
    os.kill(os.getpid(), 9)
  return save(self, step, *a, **k)
ocp.CheckpointManager.save = killed
import runpy
sys.argv = ['run_lra.py', *sys.argv[1:]]
runpy.run_path({root!r} + '/run_lra.py', run_name='__main__')
"""


def _start(name, *more, **changes):
  """Kills a run in its first save; returns (undisturbed, after) first loss."""
  losses = []
  for kill in (False, True):
    folder = HOME / f'{name}-{kill}'
    args = [f'--config={ROOT}/configs/simpletron.py:listops_mini', '--norecord',
            f'--workdir={folder}', *more, *flags(**changes)]
    if kill:
      code, _, _ = python(_FIRST_SAVE.format(root=str(ROOT)), *args)
      assert code == -9, code
    code, _, err = lra(*args)
    losses.append(first_loss(folder) if code == 0 else err.splitlines()[-1])
  same = 'same' if losses[0] == losses[1] else 'OTHER'
  return f'first loss {losses[0]} undisturbed, {losses[1]} after: {same}'


@case
def a1_init_from_killed_in_first_save():
  return _start('init', f'--config.init_from={base()}')


@case
def a1_pretrain_stopped_in_first_phase():
  """The first phase is stopped with SIGINT; the same command again."""
  found = []
  for stop in (False, True):
    folder = HOME / f'phase-{stop}'
    folder.mkdir()
    how = dict(task='listops_mini,pretrain=masked', cwd=folder,
               train__checkpoint_minutes=0, train__steps=6,
               pretrain__steps=80)
    (folder / 'configs').symlink_to(ROOT / 'configs')
    if stop:
      process = train(None, wait=False, **how)
      while process.poll() is None and not any(
          path.name.isdecimal()
          for path in folder.glob('runs/*/*/*/checkpoints/last/*')):
        time.sleep(0.01)
      process.send_signal(signal.SIGINT)
      process.communicate()
    code, _, err = train(None, **how)
    steps = sorted(json.loads(path.read_text())['steps']
                   for path in folder.glob('runs/*/*/*/result.json'))
    found.append(f'rc {code}, steps of the phases {steps}')
  return f'undisturbed {found[0]}; stopped {found[1]}'


@case
def a1_source_that_was_stopped():
  folder = HOME / 'stopped-source'
  process = train(folder, wait=False, train__steps=100000,
                  train__checkpoint_minutes=0, train__eval_every=100000)
  while process.poll() is None and not any(
      path.name.isdecimal() for path in folder.glob('checkpoints/last/*')):
    time.sleep(0.05)
  process.send_signal(signal.SIGINT)
  process.communicate()
  return told(train(HOME / 'from-stopped', f'--config.init_from={folder}'))


def _pathfinder(folder, tables):
  sys.path.insert(0, str(ROOT))
  import numpy as np
  from PIL import Image
  (folder / 'metadata').mkdir(parents=True)
  for i in tables:
    (folder / f'imgs/{i}').mkdir(parents=True)
    lines = []
    for j in range(5):
      Image.fromarray(np.full((32, 32), 20 * i + j, np.uint8)).save(
          folder / f'imgs/{i}/sample_{j}.png')
      lines.append(f'imgs/{i} sample_{j}.png {j} {j % 2} 1.8 14 4 5 1.5 2 1')
    (folder / f'metadata/{i}.npy').write_text('\n'.join(lines) + '\n')


@case
def a2_half_a_release_of_pathfinder():
  folder = HOME / 'half/pathfinder32/curv_contour_length_14'
  _pathfinder(folder, (1, 2))
  code, out, err = lra('data', '--task=pathfinder', f'--source={HOME}/half',
                       f'--data_dir={HOME}/half-data', '--describe')
  origin = re.search('official images[^\n]*', out + err)
  return (f'rc {code}, warning {"warning" in err}, '
          f'origin {origin and origin[0]!r}')


_LISTOPS = ('Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n'
            '( ( ( [MIN 2 ) 9 ) ] )\t2\n')


def _edited(edit):
  folder, data = HOME / f'lo-{len(edit)}', HOME / f'lo-data-{len(edit)}'
  folder.mkdir()
  for split in ('train', 'val', 'test'):
    (folder / f'basic_{split}.tsv').write_text(_LISTOPS)
  args = ('data', '--task=listops', f'--source={folder}', f'--data_dir={data}')
  assert lra(*args)[0] == 0
  (folder / 'basic_test.tsv').write_text(edit)
  return told(lra(*args, '--baselines', f'--baselines_dir={HOME}/b' if NEW else
                  f'--floors_dir={HOME}/b'))


@case
def a2_source_edited_same_size():
  return _edited(_LISTOPS.replace('9\n', '8\n').replace(' 9 ', ' 8 '))


@case
def a2_source_edited_other_size():
  return _edited(_LISTOPS + '7\t7\n')


_OWN = """
import sys, pathlib
from lra import data_prep
from lra.data_prep import listops
from lra.data_prep.content import SPLITS, Content, split_of
def make(self, files):
  rows = pathlib.Path(self.source).read_bytes().split()
  return Content(dict.fromkeys(SPLITS, split_of(rows, [0] * len(rows))),
                 {'origin': 'mine'})
listops.Listops.names, listops.Listops.make = (), make
path, data = pathlib.Path(sys.argv[1]), sys.argv[2]
path.write_bytes(bytes([1, 32, 2]))
data_prep.prepare('listops', data, path)
path.write_bytes(bytes([1, 32, 3]))
data_prep.prepare('listops', data, path)
print('kept: test has', data_prep.read('listops', data).splits['test'].tokens)
"""


@case
def a2_source_of_an_own_builder_edited():
  code = _OWN if NEW else _OWN.replace(
      'from lra import data_prep', 'import data_prep').replace(
          'from lra.data_prep', 'from data_prep').replace(
              'path, data =', 'listops.Listops.identify_source = (\n'
              '    lambda self: None)\npath, data =')
  code_, out, err = python(code, HOME / 'mine.csv', HOME / 'mine-data')
  return f'rc {code_}, {(out or err).strip().splitlines()[-1][:150]}'


@case
def a2_half_of_the_rfc_corpus():
  folder = HOME / 'rfc'
  folder.mkdir()
  (folder / 'documents.jsonl').write_text(''.join(
      json.dumps({'id': f'r{i}', 'text': f'text {i}'}) + '\n'
      for i in range(9)))
  for split in ('train', 'eval', 'test'):
    (folder / f'pairs.{split}.tsv').write_text('0\tr1\tr2\n1\tr3\tr4\n')
  code, out, err = lra('data', '--task=retrieval_rfc_mini',
                       f'--source={folder}', f'--data_dir={HOME}/rfc-data',
                       '--describe')
  origin = re.search('citations among[^\n]*', out + err)
  return (f'rc {code}, warning {"warning" in err}, '
          f'origin {origin and origin[0]!r}')


def _said(result, pattern):
  code, out, err = result
  found = [line for line in (err + out).splitlines() if re.search(
      pattern, line)]
  return f'rc {code}, ' + (f'said: {found[0][:170]}' if found else 'silent')


@case
def a3_moving_average():
  return _said(train(HOME / 'ema', optim__ema=0.9999, train__steps=30),
               'moving average')


@case
def a3_warm_up_longer_than_the_run():
  return _said(train(HOME / 'warm', train__warmup_steps=6), 'warmup_steps')


@case
def a3_one_step_with_rate_0():
  return _said(train(HOME / 'one', optim__schedule='cosine', train__steps=1),
               'train.steps=1 ')


def _config(model, task, *changes):
  """Prints the config only: whether it is refused or reported."""
  code, out, err = lra(f'--config={ROOT}/configs/{model}.py:{task}', *changes,
                       '--print_config')
  if NEW and not code:  # a run would print these
    _, err, _ = python(
        'import sys; from lra.run import check, experiment, loader; '
        'e = experiment.resolve(loader.made_by(sys.argv[1:]), '
        'made_by=sys.argv[1][9:]); '
        'print(*check.broken(check.NOTES, e.config))',
        f'--config={ROOT}/configs/{model}.py:{task}', *changes)
  return f'rc {code}, {err.strip()[:170] or "silent"}'


@case
def a3_long_conv_under_s4():
  return _config('long_conv', 'text,protocol=s4',
                 '--config.train.ssm_learning_rate=0.001')


for _name, _changes in {
    'b1_of_sgd': ('optim.name=sgd', 'train.b1=0.5'),
    'eps_of_lion': ('optim.name=lion', 'train.eps=0.001'),
    'norm_eps_of_rms': ('encoder.norm=rms', 'encoder.norm_eps=0.001'),
    'max_positions_of_none': (
        'encoder.positions=none', 'encoder.max_positions=9000'),
    'cls_position_without_cls': (
        'encoder.pooling=mean', 'encoder.cls_has_position=True'),
    'nli_of_one_document': ('encoder.head=nli',),
    'norm_place_of_none': ('encoder.norm=none', 'encoder.norm_place=post'),
    'norm_embedding_of_none': (
        'encoder.norm=none', 'encoder.norm_embedding=True'),
    'gelu_of_glu': ('encoder.block=glu', 'encoder.gelu=exact'),
    'head_layers_of_pooler': (
        'encoder.pooler=True', 'encoder.head_layers=3'),
    'tie_dropout_without': (
        'encoder.dropout=0', 'encoder.tie_dropout=True'),
    'cpu_microbatch': ('train.microbatch_size=8',
                       'train.cpu_microbatch_size=4')}.items():
  def _one(changes=_changes):
    return _config('transformer', 'text', *(
        f'--config.{change}' for change in changes))
  _one.__name__ = f'a3_{_name}'
  case(_one)


@case
def a3_predict_cuts():
  path = HOME / 'long.txt'
  path.write_text('[MIN ' + '9 ' * 30 + '[MAX 0 0 ] ]\n')
  return _said(lra('predict', str(path), str(base())), 'cut')


@case
def a3_step_of_safetensors():
  out = HOME / 'exported'
  code, _, err = lra('export', str(out), str(base()))
  assert code == 0, err
  from safetensors import numpy, safe_open
  path, found = out / 'model.safetensors', []
  with safe_open(path, 'numpy') as f:
    about = json.loads(f.metadata()['lra'])
  arrays = numpy.load_file(path)
  for step in ('-5', 'true', '1' + '0' * 400, '4.5'):
    text = json.dumps(about).replace(
        f'"step": {about["step"]}', f'"step": {step}')
    path.write_bytes(numpy.save(arrays, {'lra': text}))
    code, printed, err = lra('evaluate', str(out))
    shown = re.search('parameters of step [^\n]{0,12}', printed + err)
    found.append(f'{step[:5]}: rc {code} {shown[0] if shown else ""}')
  return '; '.join(found)


@case
def a3_two_models():
  path = HOME / 'two.toml'
  if NEW:
    path.write_text('[[runs]]\nmodels = ["transformer"]\n'
                    'models = ["simpletron"]\ntasks = ["parity"]\n')
    result = lra('runs', str(path), '--plan', cwd=ROOT)
  else:
    path = HOME / 'two.txt'
    path.write_text('models=transformer\nmodels=simpletron\n'
                    'parity train.learning_rate=[0.001,0.003]\n')
    result = lra(f'--suite={path}', '--plan', cwd=ROOT)
  models = sorted({name for name in ('transformer', 'simpletron')
                   if name in result[1]})
  return f'{told(result)}; planned {models}'


@case
def a3_models_flag_twice():
  if not NEW:
    return 'no such flag'
  path = HOME / 'three.toml'
  path.write_text('[[runs]]\nmodels = ["local"]\ntasks = ["parity"]\n')
  result = lra('runs', str(path), '--plan', '--models=transformer',
               '--models=simpletron', cwd=ROOT)
  return f'planned {sorted(set(re.findall("transformer|simpletron", result[1])))}'


@case
def a3_field_in_two_forms():
  if not NEW:
    return 'no such form'
  path = HOME / 'forms.toml'
  path.write_text('[[runs]]\nmodels = ["local"]\ntasks = ["parity"]\n'
                  'set."train.steps" = 7\nset.train.steps = 9\n')
  return told(lra('runs', str(path), '--plan', cwd=ROOT))


@case
def a3_flags_without_effect():
  found = [lra(*words) for words in (
      ('board', '--studies', f'--html={HOME}/x', f'--results_dir={HOME}/none'),
      ('data', '--task=parity', f'--baselines_dir={HOME}/b'))]
  found.append(train(HOME / 'replace', '--replace'))
  return '; '.join(told(result)[:70] for result in found)


def _own_task(name, test=''):
  """Returns a folder with an own task, and the result of its command."""
  folder = HOME / name
  shutil.copytree(ROOT / 'configs', folder / 'configs')
  (folder / 'm.csv').write_text('t,l\n' + ''.join(
      f'text {i},{i % 2}\n' for i in range(99)))
  return folder, lra(
      'data', '--csv=m.csv', '--text=t', '--label=l', '--name=mine', *test,
      f'--data_dir={folder}/data', cwd=folder)


@case
def a3_test_table_that_is_the_first():
  return told(_own_task('same', ['--test_csv=m.csv'])[1])


_KILL_AFTER = """
import os, runpy, sys
sys.path.insert(0, {root!r})
from lra.core import files
write_all = files.write_all
def killed(contents, *more):
  write_all(contents, *more)
  if any('res/runs' in str(path) for path in contents):
    os.kill(os.getpid(), 9)
files.write_all = killed
sys.argv = ['run_lra.py', *sys.argv[1:]]
runpy.run_path({root!r} + '/run_lra.py', run_name='__main__')
"""


@case
def a1_record_of_own_task_killed():
  """Between the record and the description of its task."""
  folder, _ = _own_task('record')
  args = ['--config=configs/transformer.py:mine', '--record', *flags(),
          '--results_dir=res', f'--config.data_dir={folder}/data']
  code, *_ = python(_KILL_AFTER.format(root=str(ROOT)), *args, cwd=folder)
  result = lra(*args, cwd=folder)
  (folder / 'configs/tasks/mine.py').unlink()
  (folder / 'res/leaderboard.md').unlink(missing_ok=True)
  board = lra('board', '--results_dir=res', cwd=folder)
  page = folder / 'res/leaderboard/mine.md'
  there = page.exists()
  for path in folder.glob('res/runs/mine/*'):
    path.unlink()
  lra('board', '--results_dir=res', cwd=folder)
  return (f'killed {code}, again rc {result[0]}, elsewhere left out '
          f'{"left out" in board[2]}, page {there}, without rows '
          f'{page.exists()}')


@case
def a1_count_of_a_tracker_damaged():
  folder = _folder('tracker')
  (folder / 'r').mkdir()
  (folder / 'r/mlflow.json').write_text('{"id": "", "points": "x"}')
  return told(train(folder / 'r', '--log=mlflow', cwd=folder))


@case
def a2_test_table_copied_from_val():
  folder = HOME / 'copied'
  folder.mkdir()
  for split, first in (('train', 0), ('val', 1), ('test', 1)):
    (folder / f'basic_{split}.tsv').write_text('Source\tTarget\n' + ''.join(
        f'[MAX {first} {i // 10} {i % 10} ]\t{max(first, i // 10, i % 10)}\n'
        for i in range(100)))
  return _said(lra('data', '--task=listops', f'--source={folder}',
                   f'--data_dir={HOME}/copied-data'), 'equal examples')


@case
def b_list_with_a_broken_task():
  folder = HOME / 'broken'
  shutil.copytree(ROOT / 'configs', folder / 'configs')
  (folder / 'configs/tasks').mkdir(exist_ok=True)
  (folder / 'configs/tasks/bad.py').write_text('CLASSES = (\n')
  (folder / 'configs/tasks/clear.py').write_text(
      'TITLE = "\\x1b[2J"\nSEQ_LEN = 64\nCLASSES = ("a", "b")\n')
  code, out, err = lra('list', cwd=folder)
  return (f'rc {code}, {len(out.splitlines())} lines, bad.py named '
          f'{"bad.py" in out + err}, raw escape {chr(27) in out}')


@case
def b5_optuna_num_heads():
  return told(train(None, '--search=optuna', '--trials=6', '--notest',
                    '--space=model.num_heads=int(1,8)', model='transformer',
                    model__num_heads=None, cwd=_folder('optuna')))


def _folder(name):
  (HOME / name).mkdir()
  (HOME / name / 'configs').symlink_to(ROOT / 'configs')
  return HOME / name


def _with_runs(name):
  """Returns a folder with a file of two runs, one of them finished."""
  folder = _folder(name)
  fields = {n: v for n, v in SMALL.items()}
  if NEW:
    (folder / 'a.toml').write_text(
        '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
        'seeds = "0-1"\nset = {' + ', '.join(
            f'"{n}" = {v}' for n, v in fields.items()) + '}\n')
    words = ['runs', 'a.toml']
  else:
    (folder / 'a.txt').write_text(
        'configs/simpletron.py:listops_mini seeds=0-1 ' + ' '.join(
            f'{n}={v}' for n, v in fields.items()) + '\n')
    words = ['--sweep=a.txt']
  code, _, err = lra(*words, '--norecord', cwd=folder)
  assert code == 0, err
  return folder, words, sorted(folder.glob('runs/listops_mini/*/*'))


@case
def b6_status_of_one_edited_config():
  folder, words, (one, two) = _with_runs('status')
  (two / 'result.json').unlink()
  config = json.loads((two / 'config.json').read_text())
  found = []
  for steps in (10**400, '"9"', -1):
    config['train']['steps'] = 'STEPS'
    (two / 'config.json').write_text(
        json.dumps(config).replace('"STEPS"', str(steps)))
    result = lra(*words, '--status', cwd=folder)
    found.append(f'{str(steps)[:5]}: {told(result)[:60]}')
  (two / 'config.json').write_text(json.dumps(config).replace('"STEPS"', '4'))
  (two / 'metrics.jsonl').write_text(
      '{"split": "val", "step": 2, "accuracy": "x"}\n\n')
  found.append(f'accuracy x: {told(lra(*words, "--status", cwd=folder))[:60]}')
  return '; '.join(found)


@case
def b6_curves_of_all_runs():
  folder, _, (one, two) = _with_runs('curves')
  (two / 'metrics.jsonl').write_text('')
  result = lra('curves', 'c.png', str(one), str(two), cwd=folder)
  return f'{told(result)}; picture {(folder / "c.png").exists()}'


@case
def b7_two_begin_mlflow():
  folder = _folder('mlflow')
  both = [train(None, '--log=mlflow', wait=False, cwd=folder, seed=seed)
          for seed in (0, 1)]
  return '; '.join(told(ended(process)) for process in both)


@case
def b7_a_database_that_is_none():
  folder = _folder('nodb')
  (folder / 'mlflow.db').write_text('no database' * 1000)
  return told(train(None, '--log=mlflow', cwd=folder))


_KILL_RENAME = """
import os, sys
sys.path.insert(0, {root!r})
import runpy
rename = os.rename
def killed(a, b, *more):
  if '.tmp-' in str(a):
    os.kill(os.getpid(), 9)
  return rename(a, b, *more)
{name} = killed
sys.argv = ['run_lra.py', *sys.argv[1:]]
runpy.run_path({root!r} + '/run_lra.py', run_name='__main__')
"""


@case
def e_export_killed_before_its_rename():
  folder = _folder('export')
  words = ('export', 'out', str(base()))
  code, *_ = python(_KILL_RENAME.format(root=str(ROOT), name='os.rename'),
                    *words, cwd=folder)
  result = lra(*words, cwd=folder)
  return (f'killed {code}, again rc {result[0]}, left '
          f'{len(list(folder.glob(".tmp-*")))}')


@case
def e_run_killed_before_a_rename():
  folder = HOME / 'killed-run'
  args = [f'--config={ROOT}/configs/simpletron.py:listops_mini', '--norecord',
          f'--workdir={folder}', *flags()]
  code, *_ = python(_KILL_RENAME.format(root=str(ROOT), name='os.replace'),
                    *args)
  result = lra(*args)
  return (f'killed {code}, again rc {result[0]}, left '
          f'{len(list(folder.glob(".tmp-*")))}')


@case
def e_trial_killed():
  place = HOME / 'tmp'
  place.mkdir()
  ENV['TMPDIR'] = str(place)
  words = (f'--config={ROOT}/configs/simpletron.py:listops_mini', '--trial',
           '--compile_cache=', *flags(train__steps=None))
  killed(lra(*words, wait=False), lambda: any(
      path for name in ('lra-trial-*/*', '.tmp-*/*')
      for path in place.glob(name)))
  before = len([*place.iterdir()])
  code, *_ = lra(*words)
  del ENV['TMPDIR']
  return f'left {before}, again rc {code}, left {len([*place.iterdir()])}'


@case
def e_what_git_ignores():
  checked = subprocess.run(
      ['git', '-C', ROOT, 'check-ignore', 'mlflow.db', 'site/index.html',
       'mlruns/0'], capture_output=True, text=True)
  return f'ignored: {checked.stdout.split()}'


def main():
  try:
    for function in CASES:
      if WORD in function.__name__:
        try:
          what = function()
        except Exception as e:
          what = f'the case itself failed: {type(e).__name__}: {str(e)[-300:]}'
        print(f'{function.__name__}: {what}', flush=True)
  finally:
    shutil.rmtree(HOME, ignore_errors=True)


main()
