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

from lra.board import boards as boards_lib
from lra.board import inputs, publish, render, site
from lra.core.errors import UserError
from lra.schema import result
from tests.helpers import scored
from tests.helpers.paths import ROOT

RUN = json.loads(
    (pathlib.Path(__file__).parent / 'data' / 'result.json').read_text())


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
  return ''.join(path.read_text('utf-8') for path in (
      place.page, *sorted(place.details.glob('*.md'))))


# A process that publishes the run of one seed. The process of seed 0 reads the
# records, then waits for the file `go` before it writes the page.
RACER = """
import json, pathlib, sys, time
from lra.schema import result
from lra.board import publish, site
folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
fields = json.loads((folder / 'run.json').read_text())
fields['seed'] = fields['config']['seed'] = number
fields['test']['loss'] += number / 100
load = site.boards_lib.load

def stop(*folders):
  made = load(*folders)
  (folder / 'read').touch()
  while not (folder / 'go').exists():
    time.sleep(0.01)
  return made

if number == 0:
  site.boards_lib.load = stop
publish.publish(result.validate(fields),
                publish.Place(folder / 'results', folder / 'page.md'))
"""


def test_three_that_publish_at_once_have_three_rows(tmp_path, place):
  """A process reads the records; two more publish before it writes the page."""
  (tmp_path / 'run.json').write_text(json.dumps(RUN))

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


@pytest.mark.parametrize('lock', [publish.LOCK, publish.RECORDS_LOCK])
def test_a_lock_that_is_never_let_go_is_named(place, monkeypatch, capfd, lock):
  monkeypatch.setattr(publish, 'PATIENCE_SECONDS', 0.2)
  place.results.mkdir()
  with open(place.results / lock, 'w') as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(UserError, match=lock):
      publish.publish(run(), place)
  assert 'waiting' in capfd.readouterr().err
  # If only the page is locked, the record is written, and is on the next page.
  assert place.path(run()).exists() == (lock == publish.LOCK)
  assert not place.page.exists() and not publish.done(run(), place)
  publish.publish(run(), place)
  assert '| transformer |' in text(place)


def test_a_holder_that_was_killed_keeps_nobody(place):
  place.results.mkdir()
  holder = subprocess.Popen(
      [sys.executable, '-c', 'import fcntl, sys, time\n'
       'held = open(sys.argv[1], "w")\nfcntl.flock(held, fcntl.LOCK_EX)\n'
       'print(flush=True)\n'
       'time.sleep(99)', str(place.results / publish.LOCK)],
      stdout=subprocess.PIPE)
  holder.stdout.readline()
  holder.kill()
  holder.wait()
  publish.publish(run(), place)
  assert '| transformer |' in text(place)


def test_an_empty_folder_becomes_a_leaderboard(place):
  publish.check(place)
  publish.publish(run(), place)
  page = text(place)
  assert '| transformer |' in page and '## `lra`' in page
  assert (place.results / 'runs' / run().record_path).exists()
  assert {p.name for p in place.results.iterdir()} <= {
      'runs', 'figures', publish.LOCK, publish.RECORDS_LOCK}


def test_a_folder_has_its_own_published_results_where_it_has_any(place):
  place.results.mkdir()
  (place.results / 'published.csv').write_text(
      ','.join(inputs.COLUMNS) + '\n')
  publish.publish(run(), place)
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
])
def test_what_would_fail_afterwards_is_found_before(place, spoil, words):
  spoil(place)
  with pytest.raises(UserError) as error:
    publish.check(place)
  assert all(word in str(error.value) for word in words)


def test_a_page_in_a_file_is_found_before(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(UserError, match='--page'):
    publish.check(publish.Place(tmp_path / 'r', tmp_path / 'file' / 'p.md'))


def test_the_same_result_again_makes_the_page_again(place):
  publish.publish(run(), place)
  before = text(place)
  place.page.unlink()
  publish.publish(run(), place)
  assert text(place) == before


def test_another_result_of_a_run_is_compared_and_replaced_on_request(
    place, capfd):
  old = run(git_commit='a' * 40, steps_per_s=10.0)
  publish.publish(old, place)
  before = text(place)
  test = scored.of([[70, 30], [30, 70]])
  new = run(test=test, git_commit='b' * 40, git_dirty=True, steps_per_s=12.5,
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


def test_a_result_outside_the_recorded_interval_is_not_reproduced(
    place, capfd):
  publish.publish(run(), place)
  publish.publish(run(test=scored.of([[75, 25], [25, 75]])), place)
  assert 'NOT reproduce' in capfd.readouterr().err


def test_results_that_cannot_be_compared_in_numbers_are_compared(place, capfd):
  publish.publish(run(), place)
  publish.publish(run(status='diverged', test=None, steps_per_s=None), place)
  told = capfd.readouterr().err
  assert 'diverged' in told and '--replace' in told


def test_a_damaged_record_is_replaced_on_request_only(place, capfd):
  path = place.path(run())
  path.parent.mkdir(parents=True)
  path.write_text('{"torn')
  publish.publish(run(), place)
  assert 'damaged' in capfd.readouterr().err
  assert path.read_text() == '{"torn'
  publish.publish(run(), place, replace=True)
  assert result.read(path) == run() and '| transformer |' in text(place)


def test_what_a_run_changes_may_be_found_out_later(place):
  """A record without the field `changes` equals one that has it."""
  publish.publish(run(), place)
  publish.publish(run(changes={'train.steps': 4000}), place)
  assert 'settings changed' not in (
      place.details / 'text_mini.md').read_text('utf-8')


def test_a_folder_without_records_makes_no_page(place):
  with pytest.raises(UserError, match='no records.*--results_dir'):
    publish.regenerate(place)
  assert not place.results.exists() and not place.page.exists()


def test_what_a_killed_publisher_left_is_removed(place):
  for folder in ('runs/text_mini', 'figures'):
    (place.results / folder).mkdir(parents=True)
    (place.results / folder / '.tmp-abc').touch()
  publish.regenerate(place)
  assert not list(place.results.rglob('.tmp-*'))


def test_changed_settings_are_named_and_stand_apart(place):
  publish.publish(run(), place)
  publish.publish(changed_run(
      **{'train.steps': 4000, 'model.window': 0.5}), place)
  page = (place.details / 'text_mini.md').read_text('utf-8')
  same, changed = page.split('## Protocol `simpletron`, settings changed\n')
  assert same.count('| transformer |') == 1 and 'changed' not in same
  assert ('| model.window unset instead of 0.5, train.steps 300 instead of '
          '800 |') in changed
  assert '| transformer | simpletron, settings changed |' in changed
  assert place.page.read_text('utf-8').count('| transformer |') == 1
  boards, _ = boards_lib.load(place.results / 'runs', place.results / 'floors')
  row, = (r for r in boards[0].rows if r.changes)
  assert row.table.changed and not row.variant


def test_only_runs_of_the_protocol_are_in_the_overview(place):
  publish.publish(changed_run(**{'train.steps': 4000}), place)
  assert '| transformer |' not in place.page.read_text('utf-8')
  assert '| train.steps 300 instead' in text(place)


def test_a_changed_transformer_is_not_the_measure(place):
  publish.publish(run(), place)
  wide = changed_run(**{'train.steps': 9})
  publish.publish(wide.model_copy(update={'num_params': 9000}), place)
  assert '| 1 | **9,000** |' in text(place) and '| 9.00 |' in text(place)
  assert '| 1 | 1,000 |' in text(place)


def test_the_page_says_what_ran_where_the_commit_does_not(place):
  digests = {'model_sha256': 'a' * 64, 'config_sha256': 'b' * 64}
  publish.publish(run(git_commit='c' * 40, **digests), place)
  assert '| cccccccc |' in text(place)
  publish.publish(run(git_commit='c' * 40, git_dirty=True, **digests), place,
                  replace=True)
  assert ('| cccccccc (modified: model aaaaaaaa, config bbbbbbbb) |'
          in text(place))
  publish.publish(run(git_commit=None, git_dirty=None, **digests), place,
                  replace=True)
  assert '| model aaaaaaaa, config bbbbbbbb |' in text(place)


def test_seeds_of_different_code_are_said_to_be(place):
  publish.publish(run(model_sha256='a' * 64), place)
  assert '**mixed versions**' not in text(place)
  publish.publish(run(seed=1, model_sha256='b' * 64), place)
  assert '**mixed versions**' in text(place)


def test_a_page_that_was_begun_before_a_record_does_not_have_it(
    place, monkeypatch):
  """`done` is false for a record written while a page is being made."""
  publish.publish(run(), place)
  mine = run(seed=1)
  load = publish.site.boards_lib.load

  def read(*folders):
    made = load(*folders)
    monkeypatch.setattr(publish.site.boards_lib, 'load', load)
    monkeypatch.setattr(publish, '_MOMENT_SECONDS', 0)
    monkeypatch.setattr(publish, 'PATIENCE_SECONDS', 0)
    with pytest.raises(UserError, match=publish.LOCK):
      publish.publish(mine, place)  # as if killed while it waits
    return made

  monkeypatch.setattr(publish.site.boards_lib, 'load', read)
  publish.regenerate(place)
  assert place.page.stat().st_mtime >= place.path(mine).stat().st_mtime
  assert '| 2 |' not in text(place) and not publish.done(mine, place)
  assert publish.done(run(), place)
  publish.regenerate(place)
  assert '| 2 |' in text(place) and publish.done(mine, place)


def test_what_waits_for_one_page_is_not_on_another(place, monkeypatch):
  other = publish.Place(place.results, place.page.with_name('other.md'))
  write = publish._write

  def killed(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(publish, '_write', killed)
  with pytest.raises(KeyboardInterrupt):
    publish.publish(run(), place)
  monkeypatch.setattr(publish, '_write', write)
  publish.regenerate(other)
  assert not publish._marks(other) and len(publish._marks(place)) == 1
  assert '| transformer |' in text(other) and not place.page.exists()
  publish.regenerate(place)
  assert not publish._marks(place) and '| transformer |' in text(place)


def test_a_record_by_a_clock_that_was_ahead_is_on_the_page(place):
  publish.publish(run(), place)
  ahead = time.time() + 9999
  os.utime(place.path(run()), (ahead, ahead))
  assert not publish.done(run(), place)
  publish.publish(run(), place)
  assert publish.done(run(), place)


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
  os.utime(place.page)
  assert publish.done(mine, place)


@pytest.mark.parametrize('lock', [publish.LOCK, publish.RECORDS_LOCK])
def test_a_lock_leads_nowhere_else(place, lock):
  victim = place.page.with_name('victim')
  place.results.mkdir()
  victim.write_text('precious')
  (place.results / lock).hardlink_to(victim)
  publish.publish(run(), place)
  (place.results / lock).unlink()
  (place.results / lock).symlink_to(victim)
  with pytest.raises(UserError, match=f'{lock} is a link'):
    publish.publish(run(seed=1), place)
  assert victim.read_text() == 'precious'


@pytest.mark.parametrize('mode', [0o755, 0o775, 0o2777])
def test_who_may_write_in_the_folder_may_lock_it(place, mode):
  place.results.mkdir()
  place.results.chmod(mode)
  publish.publish(run(), place)
  for lock in (publish.LOCK, publish.RECORDS_LOCK):
    assert (place.results / lock).stat().st_mode & 0o777 == (
        0o644 | mode & 0o022)


@pytest.mark.parametrize('name', [
    publish.LOCK, publish.RECORDS_LOCK, 'runs/text_mini', 'figures'])
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


def test_what_a_kill_left_undone_is_known(place):
  """`done` is true if the page is newer than the record, or the record differs.
  """
  mine, other = run(), run(steps_per_s=1.0)
  assert not publish.done(mine, place)
  publish.publish(mine, place)
  assert publish.done(mine, place)
  record = place.path(mine)
  os.utime(place.page, (0, 0))
  assert not publish.done(mine, place)
  result.write(record, other)  # newer than the page, as in a fresh checkout
  os.utime(place.page, (0, 0))
  assert publish.done(mine, place)
  place.page.unlink()
  record.unlink()
  assert not publish.done(mine, place)
