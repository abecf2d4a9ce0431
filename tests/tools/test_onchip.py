"""Runs the measurements meant for an accelerator on a CPU, in small sizes."""

import json

import pytest

from lra.core import machine
from tests.helpers import errors
from tests.helpers.errors import Case
from tools import benchmark, onchip

TINY = {
    'errors': [Case(9, 1, 8, 'float32', 'ragged')],
    'kernels': {**benchmark.SMALL, 'tokens': 128, 'heads': 1, 'lengths': (64,),
                'widths': (8,), 'calls': 1, 'copy': 2**12},
}


@pytest.mark.full
def test_every_stage_ends_in_the_file(tmp_path):
  path = tmp_path / 'results' / 'here.json'
  onchip.run(path, sizes=TINY)
  record = json.loads(path.read_text())
  assert record['device'] and record['kernels']['packages']['jax']
  assert not any('failed' in record[stage] for stage in onchip.STAGES)
  errors = record['errors']
  assert 0 < errors['within_bounds'] == errors['measured'] < len(errors['rows'])
  assert any('us' in row for row in record['kernels']['rows'])


def test_a_stage_that_fails_costs_no_other(tmp_path, monkeypatch):
  path = tmp_path / 'here.json'
  path.write_text(json.dumps(
      {'device': machine.device_name(), 'layers': {'rows': [1]}}))

  def broken(*_):
    raise RuntimeError('no such kernel')

  monkeypatch.setattr(onchip, '_kernels', broken)
  record = onchip.run(path, ('kernels', 'errors'), TINY)
  assert record['kernels']['failed'] == 'RuntimeError: no such kernel'
  assert record['errors']['measured'] > 0
  assert record['layers'] == {'rows': [1]}  # kept from the earlier file
  assert json.loads(path.read_text()) == record


def test_what_was_ended_goes_on(tmp_path, monkeypatch):
  path, begun = tmp_path / 'here.json', []
  prepared = errors.prepared

  def noted(op, kernel, case):
    measure = prepared(op, kernel, case)

    def found():
      if len(begun) == 2:
        raise KeyboardInterrupt
      begun.append((op, kernel))
      return measure()

    return found

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(onchip.errors, 'prepared', noted)
    onchip.run(path, ('errors',), TINY)
  before = json.loads(path.read_text())['errors']
  kept = [(row['op'], row['kernel']) for row in before['rows']]
  assert before['ended'] and len(set(begun)) == 2 and set(begun) <= set(kept)
  made = []
  monkeypatch.setattr(
      onchip.errors, 'prepared',
      lambda op, kernel, case: made.append((op, kernel)) or prepared(
          op, kernel, case))
  after = onchip.run(path, ('errors',), TINY)['errors']
  assert [row for row in after['rows'] if row in before['rows']] == sorted(
      before['rows'], key=after['rows'].index)
  assert 'ended' not in after and after['seconds'] >= before['seconds']
  assert len(made) == len(set(made)) and not set(made) & set(kept)
  assert after['measured'] == len(set(made) | set(begun)) > 2


def test_nothing_runs_while_something_compiles(tmp_path, monkeypatch):
  """All cases of a group are compiled before the first one runs.

  On an H200, XLA once ended a process that did both at the same time.
  """
  done, prepared = [], errors.prepared

  def noted(op, kernel, case):
    measure = prepared(op, kernel, case)
    done.append('compiled')

    def found():
      done.append('run')
      return measure()

    return found

  monkeypatch.setattr(onchip.errors, 'prepared', noted)
  monkeypatch.setattr(onchip, 'GROUP', 99)
  onchip.run(tmp_path / 'here.json', ('errors',), TINY)
  assert done == sorted(done) and set(done) == {'compiled', 'run'}


def test_a_stage_of_another_version_is_measured_again(tmp_path, monkeypatch):
  path, asked = tmp_path / 'here.json', []
  monkeypatch.setattr(
      onchip, '_kernels', lambda _, before, save: asked.append(before) or {})
  for commit, end in (('a', {}), ('a', {'ended': 'x'}), ('b', {'ended': 'x'})):
    monkeypatch.setattr(
        onchip.machine, 'git_state', lambda commit=commit: {'git': commit})
    record = onchip.run(path, ('kernels',), TINY)
    record['kernels'] |= {'rows': [commit], **end}
    path.write_text(json.dumps(record))
  onchip.run(path, ('kernels',), TINY)
  assert asked == [{}, {}, {}, {'rows': ['b']}]


def test_a_case_that_fails_costs_no_other(tmp_path, monkeypatch):
  prepared = errors.prepared

  def broken(op, kernel, case):
    if (op, kernel) == ('linear', 'xla'):
      raise RuntimeError('no such kernel')
    if op == 'simpletron':
      raise NotImplementedError('takes no states')
    return prepared(op, kernel, case)

  monkeypatch.setattr(onchip.errors, 'prepared', broken)
  found = onchip.run(tmp_path / 'here.json', ('errors',), TINY)['errors']
  rows = {(row['op'], row['kernel']): row for row in found['rows']}
  assert found['failures'] == 1 < found['measured'] == found['within_bounds']
  assert rows['linear', 'xla']['failed'] == 'RuntimeError: no such kernel'
  assert rows['simpletron', 'xla']['skipped'] == 'takes no states'
