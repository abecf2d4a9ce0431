"""Tests the progress of runs, read from files made by hand."""

import io
import json
import os
import time

import pytest

from lra.many import runs, status
from lra.schema import result as result_lib
from tests.helpers import committed

RECORD, = committed.records('listops_mini', 'simpletron')


def _entry(folder, **contents):
  folder.mkdir()
  for name, text in contents.items():
    (folder / name.replace('_', '.')).write_text(text)
  return runs.Run((f'--config={folder.name}', '--config.seed=0'), folder)


def _log(*points):
  return '\n'.join(json.dumps(point) for point in points)


@pytest.fixture
def entries(tmp_path):
  """Returns {kind: a run of that kind}, such as new, running and damaged."""
  config = json.dumps({'train': {'steps': 500}})
  entries = {
      'new': _entry(tmp_path / 'new'),
      'begun': _entry(tmp_path / 'begun', config_json=config),
      'running': _entry(
          tmp_path / 'running', config_json=config, metrics_jsonl=_log(
              {'split': 'train', 'step': 50, 'seconds': 20.0},
              {'split': 'val', 'step': 50, 'accuracy': 0.4},
              {'split': 'train', 'step': 100, 'seconds': 40.0},
              {'split': 'val', 'step': 100, 'accuracy': 0.3}) + '\n{"spl'),
      'torn': _entry(tmp_path / 'torn', config_json=config,
                     metrics_jsonl='{}\n{}\n'),
      'ok': _entry(tmp_path / 'ok', result_json=RECORD.read_text()),
      'damaged': _entry(tmp_path / 'damaged', result_json='{'),
  }
  minute_ago = time.time() - 60
  os.utime(tmp_path / 'running/metrics.jsonl', (minute_ago, minute_ago))
  return entries


def test_each_kind_of_run(entries):
  at = {name: status.of(entry) for name, entry in entries.items()}
  assert (at['new'].status, at['new'].step) == ('new', None)
  assert (at['begun'].status, at['begun'].step, at['begun'].steps) == (
      'started', 0, 500)
  running = at['running']
  assert (running.step, running.steps, running.val, running.test) == (
      100, 500, 0.4, None)
  assert running.left == 160  # 400 steps of 0.4 seconds
  assert 60 <= running.silent < 600
  recorded = result_lib.read(RECORD)
  assert (at['ok'].status, at['ok'].step, at['ok'].steps) == (
      'ok', recorded.steps, recorded.config['train']['steps'])
  assert (at['ok'].val, at['ok'].test) == (
      recorded.val.accuracy, recorded.test.accuracy)
  for name, file in (('torn', 'metrics.jsonl'), ('damaged', 'result.json')):
    assert at[name].status == 'damaged'
    assert str(entries[name].folder / file) in at[name].problem


_VALUES = ('true', '-1', '"9"', '1e999', f'1{"0" * 400}', '[1]', '{}')


@pytest.mark.parametrize('name, text', [
    *(('config.json', f'{{"train": {{"steps": {value}}}}}')
      for value in _VALUES),
    *(('config.json', value) for value in ('{}', '[]', '{"train": 3}')),
    *(('metrics.jsonl', f'{{"split": "val", "step": 1, "{key}": {value}}}\n\n')
      for value in _VALUES for key in ('step', 'accuracy', 'seconds')
      if key == 'step' or value != '-1')])
def test_one_edited_run_does_not_end_the_table(entries, name, text):
  (entries['running'].folder / name).write_text(text)
  lines = status.table([status.of(e) for e in entries.values()]).split('\n')
  assert [line.split()[0] for line in lines[1:-1]] == [
      'new', 'started', 'damaged', 'damaged', 'ok', 'damaged']


def test_a_stopped_run_is_at_its_checkpoint_not_at_its_last_log_line(entries):
  stopped = json.loads(RECORD.read_text()) | {
      'status': 'stopped', 'steps': 120, 'best_step': 50}
  running = entries['running']
  (running.folder / 'result.json').write_text(json.dumps(stopped))
  found = status.of(running)
  assert (found.status, found.step) == ('stopped', 120)
  assert found.left == pytest.approx(152)  # 380 steps of 0.4 seconds


def test_the_table(entries):
  lines = status.table([status.of(e) for e in entries.values()]).split('\n')
  assert [line.split()[0] for line in lines[1:-1]] == [
      'new', 'started', 'started', 'damaged', 'ok', 'damaged']
  assert lines[3].split()[1:] == [
      '100', 'of', '500', '40.00', '–', '02:40', *lines[3].split()[7:]]
  assert lines[3].endswith('ago  running seed=0')
  assert lines[-1] == '1 of 6 runs are finished.'
  # A low terminal shows what is under way first.
  lines = status.table(
      [status.of(e) for e in entries.values()], 5).split('\n')
  assert [line.split()[0] for line in lines[1:]] == [
      'started', 'started', 'damaged', 'ok', 'damaged', 'and', '1']


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def test_a_terminal_sees_it_until_all_are_finished(entries, monkeypatch):
  out, chosen = _Terminal(), [entries['ok'], entries['begun']]

  def sleep(seconds):
    (entries['begun'].folder / 'result.json').write_text(RECORD.read_text())

  monkeypatch.setattr(status.time, 'sleep', sleep)
  monkeypatch.setattr(status, 'EVERY_SECONDS', 0)
  status.show(lambda: status.standings(chosen), out)
  first, second = out.getvalue().split('\x1b[4A\x1b[J')
  assert first.endswith('1 of 2 runs are finished.\n')
  assert second.endswith('2 of 2 runs are finished.\n')
  assert len(first.splitlines()) == len(second.splitlines()) == 4


def _recorded_elsewhere(folder):
  """Writes records: seed 0 from another machine, and a stopped seed 1.

  Seed 2 is a copy of seed 0, which the page leaves out; one file is damaged.
  """
  folder = folder / 'listops_mini'
  folder.mkdir(parents=True)
  record = json.loads(RECORD.read_text())
  record['seed'] = record['config']['seed'] = 0
  record['config']['train']['microbatch_size'] = 2
  (folder / 'other.json').write_text(json.dumps(record))
  copied = record | {'seed': 2, 'config': record['config'] | {'seed': 2}}
  (folder / 'copied.json').write_text(json.dumps(copied))
  (folder / 'damaged.json').write_text('{')
  stopped = record | {'status': 'stopped', 'seed': 1}
  stopped['config'] = record['config'] | {'seed': 1}
  (folder / 'stopped.json').write_text(json.dumps(stopped))


def test_runs_that_have_a_record_are_no_new_ones(here):
  (here / 'a.toml').write_text(
      '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
      'seeds = "0-2"')
  entries = runs.read('a.toml')
  folder = here / 'results/runs'
  assert not status.recorded(entries, folder)
  _recorded_elsewhere(folder)
  records = status.recorded(entries, folder)
  at = [status.of(entry, records) for entry in entries]
  assert [s.status for s in at] == ['recorded', 'new', 'new']
  assert at[0].test == result_lib.read(RECORD).test.accuracy
  assert status.of(entries[0]).status == 'new'
  out = io.StringIO()
  status.show(lambda: status.standings(entries, records), out)
  assert out.getvalue().endswith(
      '0 of 3 runs are finished and 1 more recorded.\n')
  # A run that was begun here is `started`, despite its record.
  entries[0].folder.mkdir(parents=True)
  (entries[0].folder / 'config.json').write_text(
      json.dumps({'train': {'steps': 500}}))
  assert status.of(entries[0], records).status == 'started'
