"""Cases of own data: PYTHONPATH=CLONE python tests/cases/own_data.py CLONE."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

CLONE = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(tempfile.mkdtemp())
TABLE = ('data', '--csv=mine.csv', '--text=review', '--label=stars',
         '--name=mine')


def run(*words, cwd=HERE, **environment):
  done = subprocess.run(
      [sys.executable, str(CLONE / 'run_lra.py'), *words], cwd=cwd, text=True,
      capture_output=True, check=False, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(CLONE),
          'TFDS_DATA_DIR': str(HERE / 'data'), **environment})
  return done.returncode, done.stdout, done.stderr


def last(done):
  code, out, err = done
  lines = [line for line in (err or out).splitlines() if line.strip()]
  return f'exit {code}: {lines[-1][:150] if lines else ""}'


def table(rows=300, path='mine.csv', end='\n'):
  lines = ['review,stars'] + [
      f'"text {i}, {"good" if i % 2 else "bad"} ""so""\nand more",'
      f'{"01" if i % 2 else "NA"}' for i in range(rows)]
  (HERE / path).write_text('\n'.join(lines) + end)


def own_table():
  table()
  return last(run(*TABLE))


def own_table_latin():
  (HERE / 'latin.csv').write_bytes('review,stars\ngut,1\nschön,2\n'.encode(
      'latin-1'))
  return last(run('data', '--csv=latin.csv', '--text=review', '--label=stars',
                  '--name=latin'))


def own_table_ragged():
  (HERE / 'ragged.csv').write_text('review,stars\na,1\nb,2,3\n')
  return last(run('data', '--csv=ragged.csv', '--text=review',
                  '--label=stars', '--name=ragged'))


def own_baselines():
  return last(run('data', '--task=mine', '--baselines', '--baselines_dir=f'))


SMALL = ('--config.train.steps=20', '--config.train.eval_every=10')


def own_training():
  return last(run('--config=configs/transformer.py:mine', *SMALL, '--record',
                  '--results_dir=results'))


def own_page():
  path = HERE / 'results' / 'leaderboard.md'
  if not path.exists():
    return 'no page'
  text = path.read_text()
  return f'"No run yet": {"No run yet" in text}; row: {"| transformer" in text}'


def own_load_elsewhere():
  folder = next(iter(HERE.glob('runs/mine/*/*')), None)
  if folder is None:
    return 'no run'
  away = pathlib.Path(tempfile.mkdtemp())
  (away / 'a.txt').write_text('text 1, good\n')
  return last(run('predict', 'a.txt', str(folder), cwd=away))


def own_changed_table():
  table(310)
  return last(run('data', '--task=mine', '--baselines', '--baselines_dir=f'))


def ranks():
  (HERE / 'a.toml').write_text(
      'seeds = "0-1"\n[[runs]]\nmodels = ["simpletron", "transformer"]\n'
      'tasks = ["listops_mini"]\nset.train.steps = 20\n'
      'set.train.eval_every = 10\n')
  return ' / '.join(run('runs', 'a.toml', '--norecord')[1].splitlines()[-3:])


def recorded_said():
  (HERE / 'b.toml').write_text(
      '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
      'seeds = "0-1"\nset.train.steps = 20\nset.train.eval_every = 10\n'
      'search.train.learning_rate = [0.01, 0.02]\n')
  _, out, err = run('runs', 'b.toml', '--record', '--results_dir=results')
  return f'"not recorded" said {(out + err).count("is not recorded")} times'


def version():
  return last(run('--version'))


def changed_without_config():
  return last(run('--config.train.steps=400'))


def changed_with_runs():
  return last(run('runs', 'mini', '--config.train.steps=400'))


def width():
  return last(run('--config=configs/transformer.py:listops_mini',
                  '--config.encoder.width=130'))


def marks():
  out = run('--config=configs/transformer.py:listops_mini', '--print_config',
            '--config.train.steps=7')[1]
  return [line for line in out.splitlines() if line.startswith('train.steps')]


def near_path():
  return last(run('compare', str(HERE / 'minne.csv'), 'b.json'))


def newer():
  folder = next(iter(HERE.glob('runs/listops_mini/*/*')), None)
  if folder is None:
    return 'no run'
  path = folder / 'config.json'
  kept = path.read_text()
  path.write_text(json.dumps(json.loads(kept) | {'hyperdrive': 1}))
  found = last(run('evaluate', str(folder)))
  path.write_text(kept)
  return found


def devices():
  done = run('--config=configs/simpletron.py:listops_mini', '--norecord',
             *SMALL, JAX_NUM_CPU_DEVICES='2')
  return last((done[0], done[1], ''))


def misspelt_key():
  (HERE / 'c.toml').write_text(
      '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
      'sedes = "0-1"\n')
  return last(run('runs', 'c.toml', '--status'))


def slurm_script():
  return last(run('runs', 'mini', '--executor=slurm', '--show_script'))


CASES = {
    'table': own_table, 'latin-1': own_table_latin,
    'ragged': own_table_ragged, 'baselines': own_baselines,
    'training': own_training, 'page': own_page,
    'load elsewhere': own_load_elsewhere,
    'changed table': own_changed_table, 'ranks': ranks,
    'recorded': recorded_said, 'version': version,
    'no config': changed_without_config, 'runs': changed_with_runs,
    'width': width, 'marks': marks, 'near': near_path,
    'newer': newer, 'devices': devices, 'sedes': misspelt_key,
    'script': slurm_script}

if __name__ == '__main__':
  for name, case in CASES.items():
    print(f'{name}: {case()}', flush=True)
