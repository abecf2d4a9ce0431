"""Tests the estimated times of runs against recorded times."""

import pytest

from lra.core import files
from lra.many import plan, runs
from lra.schema import identity
from lra.schema import result as result_lib
from tests.helpers import committed


@pytest.fixture
def entry(here):
  """Returns a function that makes a run in a new folder."""
  def made(more='', task='listops_mini'):
    (here / 'a.toml').write_text(
        f'[[runs]]\nmodels = ["simpletron"]\ntasks = ["{task}"]\n{more}')
    found, = runs.read('a.toml')
    return found

  return made


def _record(name='simpletron', **changes):
  path = committed.records('listops_mini', name)[0]
  record = result_lib.read(path).model_copy(update=changes)
  return plan.Known(identity.experiment(record.config), record)


@pytest.mark.parametrize('path', [
    path for folder in sorted(committed.RUNS.iterdir())
    for path in committed.records(folder.name, 'simpletron')],
                         ids=lambda path: path.parent.name)
def test_a_run_like_a_recorded_one_takes_as_long(path, entry):
  """The estimate is the recorded time of training, evaluation and compiling."""
  record = result_lib.read(path)
  made = entry(f'protocol = "{record.protocol}"\nseeds = "77"', record.task)
  known = plan.Known(identity.experiment(record.config), record)
  estimate = plan.of(made, [known], record.device)
  whole = record.train_seconds + record.eval_seconds + record.compile_seconds
  assert estimate.seconds == pytest.approx(whole, rel=1e-6)
  assert (estimate.left, estimate.steps) == (record.steps, record.steps)
  assert (estimate.status, estimate.compiling) == ('new',
                                                   record.compile_seconds)


def test_the_nearest_record_is_taken(entry):
  """A record of the same model is preferred to one of the same device.

  Records of another kind of device come last, and must be of the same model.
  """
  here, made = 'cpu (4 cores)', entry()
  by_name = {
      'own': _record(device=here, runs_at_once=1, steps_per_s=8.0),
      'beside others': _record(device=here, runs_at_once=4, steps_per_s=2.0),
      'other cores': _record(device='cpu (1 core)', steps_per_s=5.0),
      'other model': _record('linformer', device=here, steps_per_s=6.0),
      'slow model': _record('transformer', device=here, steps_per_s=1.0),
      'slower model': _record('reformer', device=here, steps_per_s=0.5),
      'both other': _record('linformer', device='cpu (1 core)'),
      'gpu': _record(device='NVIDIA H200', steps_per_s=99.0),
      'gpu and model': _record('linformer', device='NVIDIA H200')}
  left = list(by_name)
  for expected, said in (
      ('own', 'a record'), ('beside others', 'a record beside 3 others'),
      ('other cores', 'a record on another device, cpu (1 core)'),
      ('slow model', 'a record of transformer'),
      ('other model', 'a record of linformer'),
      ('slower model', 'a record of reformer'),
      ('both other', 'a record of linformer on another device, cpu (1 core)'),
      ('gpu', 'a record on another device, NVIDIA H200')):
    estimate = plan.of(made, [by_name[name] for name in left], here)
    assert estimate.source.startswith(said), expected
    record = by_name[expected].result
    validation = record.eval_seconds + record.compile_seconds
    assert estimate.seconds == pytest.approx(
        record.steps / record.steps_per_s + validation), expected
    left.remove(expected)
  assert plan.of(made, [by_name['gpu and model']], here).seconds is None


def test_steps_without_a_record_are_estimated_by_launches_and_bytes(
    entry, tmp_path, monkeypatch):
  """The GPU moves 3.3 TB/s, and each launch takes 2 microseconds."""
  monkeypatch.setattr(plan.paths, 'PACKAGED', tmp_path)
  (tmp_path / 'launches.md').write_text(
      '| model | task | launches | GB moved | host waits |\n'
      '| s5 | listops | 9 | 9.9 | 0 |\n'
      '| simpletron | listops | 1,250 | 33.0 | 0 |\n'
      '| simpletron | image | 500 | 3.3 | 0 |\n')
  nystrom = 'protocol = "nystrom"'
  made = entry(nystrom, 'listops')

  def of(run, records=(), here='NVIDIA H200'):
    estimate = plan.of(run, records, here)
    return estimate.seconds, estimate.source

  counted = of(made)
  # 10 ms of bytes and 2.5 ms of launches, 5,000 times; 1 + 1 ms, 62,400 times.
  assert counted == (pytest.approx(62.5), 'launches and bytes, 12.50 ms a step')
  assert of(entry(nystrom, 'pathfinder'))[0] == pytest.approx(124.8)
  for run in (entry('protocol = "lra"', 'listops'), entry(nystrom, 'text'),
              entry(f'{nystrom}\nset.encoder.width = 32', 'listops')):
    assert of(run) == (None, '–')
  assert of(made, here='NVIDIA H100') == (None, '–')
  other, same = (plan.Known(
      identity.experiment(record.config),
      record.model_copy(update={'device': 'NVIDIA H200'}))
                 for name in ('lightning', 'simpletron')
                 for record in map(result_lib.read, committed.records(
                     'listops', name)[:1]))
  assert plan.of(made, [other], 'NVIDIA H100').source.startswith('a record of')
  assert of(made, [other]) == counted
  assert of(made, [other, same])[1] == 'a record'
  _begin(made, 500, timed_steps=400, train_seconds=100.0, compile_seconds=7.0)
  assert of(made) == (4500 * 0.25 + 7, 'its own speed so far')
  lines = plan.table([plan.of(entry(nystrom, 'pathfinder'), [], 'NVIDIA H200')],
                     2.5).splitlines()
  assert lines[1].split()[5] == 'yes' and 'never measured' in lines[-1]


def test_records_of_other_sizes_or_protocols_say_nothing(entry):
  record = _record(device='d d')
  for more in ('set.encoder.width = 32', 'set.seq_len = 16',
               'set.train.batch_size = 64'):
    assert plan.of(entry(more), [record], 'd d').seconds is None
  assert plan.of(entry('protocol = "nystrom"', 'listops'), [record],
                 'd d').seconds is None
  half = plan.of(entry(
      'set = {train = {steps = 2000, learning_rate = 0.3}, dtype = "bfloat16"}'
      ), [record], 'd d')
  r = record.result
  # The record has 8 validations and a test; this run makes 4 validations.
  evaluation = r.eval_seconds * (4 + r.test.examples / r.val.examples) / (
      8 + r.test.examples / r.val.examples)
  assert (r.steps, r.config['train']['eval_every']) == (4000, 500)
  assert half.seconds == pytest.approx(
      2000 / r.steps_per_s + evaluation + r.compile_seconds)


def _begin(entry, step, **memory):
  files.write_json(entry.folder / 'config.json', {})
  files.write_json(entry.folder / 'checkpoints/last' / str(step)
                   / 'memory/metadata', memory)


def test_its_own_pace_comes_first(entry):
  made = entry()
  _begin(made, 500, timed_steps=400, train_seconds=100.0, eval_seconds=12.0,
         validated_step=500, compile_seconds=7.0)
  _begin(made, 1000, timed_steps=800, train_seconds=200.0, eval_seconds=20.0,
         validated_step=1000, compile_seconds=7.0)
  estimate = plan.of(made, [], 'd d')
  # 3,000 steps of 0.25 s; six validations and a test, 10 s each.
  assert (estimate.status, estimate.left, estimate.steps) == (
      'started', 3000, 4000)
  assert estimate.seconds == 3000 * 0.25 + 7 * 10 + 7
  assert estimate.source == 'its own speed so far'
  known = _record(device='d d', compile_seconds=4.0)
  ratio = known.result.test.examples / known.result.val.examples
  assert plan.of(made, [known], 'd d').seconds == pytest.approx(
      3000 * 0.25 + (6 + ratio) * 10 + 4)


def test_a_damaged_checkpoint_is_no_end(entry):
  made = entry()
  _begin(made, 1000)
  path = made.folder / 'checkpoints/last/1000/memory/metadata'
  path.write_text('{')
  estimate = plan.of(made, [], 'd d')
  assert (estimate.seconds, estimate.left) == (None, 3000)


def test_finished_and_recorded_runs(entry):
  made = entry()
  recorded = plan.of(made, [_record(device='d d')], 'd d', {made.repetition})
  assert recorded.status == 'recorded' and recorded.seconds > 0
  made.folder.mkdir(parents=True)
  record, = committed.records('listops_mini', 'simpletron')
  (made.folder / 'result.json').write_text(record.read_text())
  finished = plan.of(made, [], 'd d', {made.repetition})
  assert (finished.status, finished.seconds, finished.left) == ('ok', 0, 0)


def _estimate(seconds):
  return plan.Estimate('a', 'new', 5, 5, seconds, None, 'x')


def test_what_fits_is_marked():
  estimates = list(map(_estimate, (0, 60, 60, 60, 1)))
  lines = plan.table(estimates, 2.5).splitlines()
  assert [line.split()[5] for line in lines[1:-1]] == [
      'yes', 'yes', 'yes', 'part', 'no']
  assert lines[-1].startswith('3.0 minutes for 4 of 4 runs')
  lines = plan.table(list(map(_estimate, (60, None, 60, 60))), 2).splitlines()
  assert [line.split()[5] for line in lines[1:-1]] == ['yes', '–', '–', 'no']
  assert lines[-1] == (
      '3.0 minutes for 3 of 4 runs that are not finished; 1 have no estimate.')
  assert 'fits' not in plan.table(estimates).splitlines()[0]


def test_the_runs_for_gpus_have_a_plan(monkeypatch, tmp_path):
  """The plan needs neither runs nor data sets, as in a fresh clone."""
  monkeypatch.chdir(tmp_path)
  found = runs.read('gpu')
  estimates = plan.of_units(runs.units(found), plan.estimator(
      found, tmp_path / 'results', device='h200'))
  assert {e.status for e in estimates} == {'new'}
  assert sum(e.seconds is not None for e in estimates) >= 12
  assert sum(e.source.startswith('launches') for e in estimates) >= 8
  assert len(plan.table(estimates).splitlines()) == len(found) + 3


def test_a_search_counts_its_runs_and_the_seeds_of_one_setting(
    entry, tmp_path):
  (tmp_path / 'b.toml').write_text('''[[runs]]
      models = ["simpletron"]
      tasks = ["listops_mini"]
      seeds = "0-2"
      search.train.learning_rate = [0.3, 0.01]''')
  asked = plan.of_units(runs.units(runs.read('b.toml')), lambda run, work: (
      run.setting[-1].rpartition('=')[2], run.seed, work))
  assert asked == [('0.3', '0', plan.WORK), ('0.01', '0', ('train',)),
                   ('0.3', '1', plan.WORK), ('0.3', '2', plan.WORK)]
