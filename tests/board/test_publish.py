"""Tests that publishing loses no row and replaces no record unasked."""

import copy
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest

from lra.board import charts, frame, inputs, publish, render, site
from lra.core.errors import UserError
from lra.schema import result
from tests.helpers import scored
from tests.helpers.page import unlinked
from tests.helpers.paths import ROOT

RUN = json.loads(
    (pathlib.Path(__file__).parent / 'data' / 'result.json').read_text())
BETTER = scored.of([[70, 30], [30, 70]])


def run(seed=0, **changes):
  fields = copy.deepcopy(RUN) | {'seed': seed} | changes
  fields['config']['seed'] = seed
  if fields['test']:
    fields['test']['loss'] += seed / 100  # else it counts as a copy
  return result.validate(fields)


@pytest.fixture
def place(tmp_path):
  return publish.Place(tmp_path / 'results', tmp_path / 'page.md')


def changed_run(**changes):
  """Returns a run of 300 steps, whose protocol has another number of steps."""
  fields = copy.deepcopy(RUN) | {'changes': changes, 'steps': 300}
  fields['config']['train']['steps'] = 300
  return result.validate(fields)


def text(place):
  """Returns all pages of a place as one text."""
  return unlinked(''.join(path.read_text('utf-8') for path in (
      place.page, *sorted(place.details.glob('*.md')))))


# A process that publishes the run of one seed. The process of seed 0 reads the
# records, then waits for the file `go` before it writes the page.
RACER = """
import json, pathlib, sys, time
from lra.schema import result
from lra.board import frame, publish
folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
fields = json.loads((folder / 'run.json').read_text())
fields['seed'] = fields['config']['seed'] = number
fields['test']['loss'] += number / 100
load = frame.load

def stop(*folders):
  made = load(*folders)
  (folder / 'read').touch()
  while not (folder / 'go').exists():
    time.sleep(0.01)
  return made

if number == 0:
  frame.load = stop
publish.publish(result.validate(fields),
                publish.Place(folder / 'results', folder / 'page.md'))
"""


def test_three_that_publish_at_once_have_three_rows(tmp_path, place):
  """A process reads the records; two more publish before it writes the page."""
  (tmp_path / 'run.json').write_text(json.dumps(RUN | {'state_size': 1}))

  def start(number):
    return subprocess.Popen(
        [sys.executable, '-c', RACER, str(tmp_path), str(number)], cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

  racers = [start(0)]
  while not (tmp_path / 'read').exists():
    assert racers[0].poll() is None, racers[0].stderr.read()
    time.sleep(0.01)
  racers += [start(1), start(2)]
  # The others print that they wait; without a lock they would finish.
  told = [next((line for line in racer.stderr if 'waiting' in line), '')
          for racer in racers[1:]]
  (tmp_path / 'go').touch()
  for racer in racers:
    racer.communicate()
  assert [racer.returncode for racer in racers] == [0, 0, 0]
  assert len(list((place.results / 'runs').rglob('*.json'))) == 3
  assert ('| 1 | transformer | 65.0 | 58.2 to 71.3 \\* | +15.0 | 3 |'
          in text(place))
  assert place.page.read_text('utf-8') == (
      render.markdown(site.load(place))[place.page])
  assert all('Another process is writing the leaderboard' in x for x in told)


# Publishes a run of each seed in a process of its own, which is killed at the
# seed-th replacement of a file. The last one is not killed.
KILLED = """
import json, os, pathlib, signal, sys
sys.modules['pyarrow'] = None  # it would start a thread
from lra.board import charts, publish
from lra.schema import result
folder = pathlib.Path(sys.argv[1])
fields = json.loads((folder / 'run.json').read_text())
replace, ends = os.replace, []

def counted(*paths):
  global left
  if not left:
    os.kill(os.getpid(), signal.SIGKILL)
  left -= 1
  replace(*paths)

charts.dots = lambda *_, **__: b'<svg/>'
fields['state_size'] = 1  # else JAX computes it
publish.publish(result.validate(fields), publish.Place(
    folder / 'warm', folder / 'warm' / 'page.md'))  # imports everything
os.replace = counted
while not ends or ends[-1]:
  left = seed = fields['seed'] = fields['config']['seed'] = len(ends)
  fields['test']['loss'] += 0.01
  child = os.fork()
  if not child:
    publish.publish(result.validate(fields), publish.Place(
        folder / 'results', folder / 'page.md'))
    os._exit(0)
  ends.append(os.waitpid(child, 0)[1])
print(len(ends))
"""


def test_a_kill_at_any_moment_is_mended_by_the_next_command(tmp_path, place):
  (tmp_path / 'run.json').write_text(json.dumps(RUN))
  done = subprocess.run(
      [sys.executable, '-c', KILLED, str(tmp_path)], cwd=ROOT, check=True,
      stdout=subprocess.PIPE, text=True,
      env={**os.environ, 'OPENBLAS_NUM_THREADS': '1'})
  count = int(done.stdout.split()[-1])
  records = [result.read(path) for path in place.runs.rglob('[!.]*.json')]
  # Of the first one, not even the record was written.
  assert sorted(run.seed for run in records) == [*range(1, count)]
  assert count > 5 and f'| {count - 1} |' in text(place)
  assert place.page.read_text('utf-8') == (
      render.markdown(site.load(place))[place.page])
  assert all(publish.done(run, place) for run in records)


def test_a_lock_that_is_never_let_go_is_named(place, monkeypatch, capfd):
  monkeypatch.setattr(publish, 'PATIENCE_SECONDS', 0.2)
  place.results.mkdir()
  with open(place.results / publish.LOCK, 'w') as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(UserError, match=publish.LOCK):
      publish.publish(run(), place)
  assert 'waiting' in capfd.readouterr().err
  # The record is written, and is on the next page.
  assert place.path(run()).exists()
  assert not place.page.exists() and not publish.done(run(), place)
  publish.publish(run(), place)
  assert '| transformer |' in text(place)


def test_an_empty_folder_becomes_a_leaderboard(place):
  with pytest.raises(UserError, match='no records.*--results_dir'):
    publish.regenerate(place)
  assert not place.results.exists() and not place.page.exists()
  publish.check(place)
  publish.publish(run(), place)
  page = text(place)
  assert '| transformer |' in page and '## `lra`' in page
  assert (place.results / 'runs' / run().record_path).exists()
  assert {p.name for p in place.results.iterdir()} == {
      'runs', 'figures', publish.LOCK}
  # A folder may have published results of its own.
  (place.results / 'published.csv').write_text(
      ','.join(inputs.COLUMNS) + '\n')
  publish.regenerate(place)
  assert not (place.details / 'published.md').exists()


@pytest.mark.parametrize('spoil, words', [
    (lambda p: p.results.write_text(''), ['--results_dir']),
    (lambda p: p.page.mkdir(), ['--page']),
    (lambda p: os.mkfifo(p.page), ['regular file', '--page']),
    (lambda p: (p.results.mkdir(), (p.results / 'runs').touch()),
     ['--results_dir']),
    (lambda p: (p.results.mkdir(),
                (p.results / 'published.csv').write_text('a,b\n')),
     ['published.csv, line 1']),
    (lambda p: (p.page.parent / 'file').touch(), ['--page'])])
def test_what_would_fail_afterwards_is_found_before(place, spoil, words):
  spoil(place)
  if words == ['--page'] and not place.page.exists():
    place = publish.Place(place.results, place.page.parent / 'file' / 'p.md')
  with pytest.raises(UserError) as error:
    publish.check(place)
  assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize('name', [publish.LOCK, 'runs/text_mini', 'figures'])
def test_what_belongs_to_another_is_found_before(place, monkeypatch, name):
  publish.publish(run(), place)
  spoilt = place.results / name
  access, temporary = os.access, tempfile.TemporaryFile

  def refused(dir):
    if dir == spoilt:
      raise PermissionError(13, 'Permission denied')
    return temporary(dir=dir)

  publish.check(place, ['text_mini'])
  monkeypatch.setattr(
      os, 'access', lambda path, mode: path != spoilt and access(path, mode))
  monkeypatch.setattr(tempfile, 'TemporaryFile', refused)
  with pytest.raises(UserError, match=f'Cannot write .*{name}'):
    publish.check(place, ['text_mini'])


def test_another_result_of_a_run_is_compared_and_replaced_on_request(
    place, capfd):
  old = run(git_commit='a' * 40, steps_per_s=10.0)
  publish.publish(old, place)
  before = text(place)
  new = run(test=BETTER, git_commit='b' * 40, git_dirty=True, steps_per_s=12.5,
            model_sha256='c' * 64)
  publish.publish(new, place)
  told = capfd.readouterr().err
  path = place.path(old)
  assert f'{path} has this run already:' in told and '--replace' in told
  table = [' '.join(line.split()) for line in told.splitlines()]
  for line in ('recorded now difference',
               'test accuracy % 65.00 70.00 +5.00 points',
               'steps/s 10.0 12.5 +25.0%',
               'commit aaaaaaaa bbbbbbbb (modified)',
               'model file unknown cccccccc'):
    assert line in table, told
  assert ' reproduces ' in told  # 70% is within 58% to 71%
  assert text(place) == before and result.read(path) == old
  publish.publish(new, place, replace=True)
  assert result.read(path) == new and '| 70.0 |' in text(place)
  assert len(list((place.results / 'runs').rglob('*.json'))) == 1


@pytest.mark.parametrize('changes, told', [
    ({'test': scored.of([[75, 25], [25, 75]])}, 'NOT reproduce'),
    ({'status': 'diverged', 'test': None, 'steps_per_s': None}, 'diverged'),
    (None, 'damaged')])
def test_what_differs_is_said_and_kept(place, capfd, changes, told):
  path = place.path(run())
  if changes is None:
    path.parent.mkdir(parents=True)
    path.write_text('{"torn')
  else:
    publish.publish(run(**changes), place)
  before = path.read_text()
  publish.publish(run(), place)
  said = capfd.readouterr().err
  assert told in said and '--replace' in said and path.read_text() == before
  publish.publish(run(), place, replace=True)
  assert result.read(path) == run() and '| 65.0 |' in text(place)
  # A record without the field `changes` equals one that has it.
  publish.publish(run(changes={'train.steps': 4000}), place)
  assert result.read(path) == run()


def test_changed_settings_are_named_and_stand_apart(place):
  changed = changed_run(**{'train.steps': 4000, 'model.window': 0.5})
  publish.publish(changed.model_copy(update={'num_params': 9000}), place)
  publish.publish(run(), place)
  page = unlinked((place.details / 'text_mini.md').read_text('utf-8'))
  same, changed = page.split('## Protocol `simpletron`, settings changed\n')
  assert same.count('| transformer |') == 1 and 'changed' not in same
  assert ('| model.window unset instead of 0.5, train.steps 300 instead of '
          '800 |') in changed
  assert '| transformer, width 0.5' not in same
  # The overview has the run of the protocol alone.
  assert unlinked(place.page.read_text('utf-8')).count('| transformer |') == 1
  (board,), _ = frame.load(place.runs, place.baselines)
  assert [key.changed for key in board.tables()] == [False, True]
  assert not any(board.rows.variant)
  # A changed Transformer sets no budget.
  assert '| 1 | **9,000** |' in text(place) and '| 9.00 |' in text(place)
  assert '| 1 | 1,000 |' in text(place)


def test_seeds_that_end_together_are_published_with_one_page(
    place, monkeypatch, capfd):
  publish.publish(run(1), place)
  pages, write = [], publish.write
  monkeypatch.setattr(publish, 'write', lambda *args, **more: (
      pages.append(args), write(*args, **more))[1])
  publish.publish_all([run(0), run(1, test=BETTER), run(2)], place)
  assert len(pages) == 1
  assert all(publish.done(run(seed), place) for seed in range(3))
  assert result.read(place.path(run(1))) == run(1)
  assert 'has this run already' in capfd.readouterr().err
  publish.publish_all([run(0), run(2)], place)
  assert len(pages) == 1


def test_a_page_that_was_begun_before_a_record_does_not_have_it(
    place, monkeypatch):
  """`done` is false for a record written while a page is being made."""
  publish.publish(run(), place)
  mine = run(seed=1)
  load = frame.load

  def read(*folders):
    made = load(*folders)
    monkeypatch.setattr(frame, 'load', load)
    monkeypatch.setattr(publish, '_MOMENT_SECONDS', 0)
    monkeypatch.setattr(publish, 'PATIENCE_SECONDS', 0)
    with pytest.raises(UserError, match=publish.LOCK):
      publish.publish(mine, place)  # as if killed while it waits
    return made

  monkeypatch.setattr(frame, 'load', read)
  publish.regenerate(place)
  assert '| 2 |' not in text(place) and not publish.done(mine, place)
  assert publish.done(run(), place)
  publish.publish(mine, place)
  assert '| 2 |' in text(place) and publish.done(mine, place)


def test_a_record_written_before_a_page_and_named_after_it_is_not_on_it(place):
  """The page is made between the writing of a record and its renaming."""
  publish.publish(run(), place)
  mine = run(seed=1)
  hidden = place.path(mine).with_name('.tmp-abc')
  result.write(hidden, mine)
  publish.regenerate(place)
  hidden.rename(place.path(mine))
  assert not publish.done(mine, place)


def test_what_a_kill_left_undone_is_known(place):
  """`done` is true if the page is newer than the record, or the record differs.
  """
  mine, other = run(), run(steps_per_s=1.0)
  elsewhere = publish.Place(place.results, place.page.with_name('other.md'))
  publish.publish(mine, elsewhere)
  assert publish.done(mine, elsewhere) and not publish.done(mine, place)
  publish.publish(mine, place)
  before = text(place)
  assert publish.done(mine, place)
  os.utime(place.page, (0, 0))
  assert not publish.done(mine, place)
  result.write(place.path(mine), other)
  assert publish.done(mine, place)
  assert not publish.done(mine, place, replace=True)
  result.write(place.path(mine), mine)
  place.page.unlink()
  assert not publish.done(mine, place)
  publish.publish(mine, place)
  assert text(place) == before
  place.path(mine).unlink()
  assert not publish.done(mine, place)


def test_figures_are_drawn_again_if_their_rows_changed(place, monkeypatch):
  drawn = []
  monkeypatch.setattr(charts, 'dots', lambda title, *_, **__: (
      drawn.append(title.split(':')[0]) or b'<svg/>'))
  mqar = copy.deepcopy(RUN) | {
      'task': 'mqar', 'val': None, 'test': scored.of(
          [[int(i == j) for j in range(64)] for i in range(64)])}
  mqar['config']['task'] = 'mqar'
  changes = [
      (lambda: publish.publish(run(), place), ['Text mini']),
      (lambda: publish.publish(result.validate(mqar), place),
       ['Associative recall']),
      (lambda: publish.publish(run(seed=1), place), ['Text mini']),
      (lambda: ((place.figures / 'mqar_accuracy.svg').unlink(),
                publish.publish(run(seed=2), place)),
       ['Text mini', 'Associative recall']),
      (lambda: publish.regenerate(place), ['Text mini', 'Associative recall'])]
  for change, wanted in changes:
    drawn.clear()
    change()
    assert drawn == wanted


def test_a_record_names_no_folder_of_its_user(place):
  flags = ['--a=1', '--xla_dump_to=/home/alice/secret', 'JAX_A=x']
  mine = run(xla_flags=flags)
  mine.config['data_dir'] = '/home/alice/data'
  publish.publish(mine, place)
  record = place.path(mine).read_text()
  assert 'alice' not in record + text(place)
  assert json.loads(record)['xla_flags'] == [
      '--a=1', '--xla_dump_to', 'JAX_A=x']
  assert publish.done(mine, place) and mine.config['data_dir']
  # A record of an earlier version names the folder; it counts as equal.
  result.write(place.path(mine), mine)
  assert not publish._differs(run(xla_flags=flags), place.path(mine))


def test_a_lock_leads_nowhere_else(place):
  lock, victim = place.results / publish.LOCK, place.page.with_name('victim')
  place.results.mkdir()
  victim.write_text('precious')
  lock.hardlink_to(victim)
  publish.publish(run(), place)
  lock.unlink()
  lock.symlink_to(victim)
  with pytest.raises(UserError, match=f'{publish.LOCK} is a link'):
    publish.publish(run(seed=1), place)
  assert victim.read_text() == 'precious'


@pytest.mark.parametrize('mode', [0o755, 0o775, 0o2777])
def test_who_may_write_in_the_folder_may_lock_it(place, mode):
  place.results.mkdir()
  place.results.chmod(mode)
  with publish._locked(place):
    assert (place.results / publish.LOCK).stat().st_mode & 0o777 == (
        0o644 | mode & 0o022)
