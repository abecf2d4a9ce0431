"""Tests the order of checkpoint writes and the handling of damaged files."""

import pathlib
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from lra.core.errors import UserError
from lra.run import checkpoint
from lra.run.checkpoint import Checkpoints
from tests.helpers import damage


def test_the_best_is_on_disk_before_the_last_names_it(tmp_path, monkeypatch):
  """Checks the order of calls, because write times depend on the disk."""
  calls = []

  def record(name):
    call = getattr(ocp.CheckpointManager, name)

    def recorded(self, *args, **kwargs):
      folder = self.directory.name
      calls.append(f'{folder} {name}')
      done = call(self, *args, **kwargs)
      calls.append(f'{folder} {name} returned')
      return done

    monkeypatch.setattr(ocp.CheckpointManager, name, recorded)

  record('save')
  record('wait_until_finished')
  checkpoints = Checkpoints(tmp_path)
  state = {'w': np.arange(3.0)}
  checkpoints.save_best(4, state)
  checkpoints.save_last(4, state, {'best_step': 4})
  checkpoints.close()
  between = calls[calls.index('best save returned'):calls.index('last save')]
  assert 'best wait_until_finished returned' in between


@pytest.mark.parametrize('layout', [1, 2])
def test_an_earlier_layout_is_refused_in_one_sentence(
    tmp_path, monkeypatch, layout):
  state = {'w': np.arange(3.0)}
  with monkeypatch.context() as patch:
    patch.setattr(checkpoint, 'LAYOUT', layout)
    old = Checkpoints(tmp_path)
    old.save_last(4, state, {'best_step': 4})
    old.close()
  now = Checkpoints(tmp_path)
  with pytest.raises(UserError, match='another version.*--workdir'):
    now.restore_last(state)
  now.close()


def test_later_progress_of_a_state_is_kept_with_it(two, tmp_path):
  """A validation that ends after the state was saved updates the checkpoint."""
  shutil.copytree(two, tmp_path, dirs_exist_ok=True)
  checkpoints = Checkpoints(tmp_path)
  checkpoints.restore_last(_state(0), _state(0))
  checkpoints.save_last(12, _state(12), {'best_step': 4, 'val': 0.25})
  checkpoints.save_best(12, _state(-12 % 100))
  checkpoints.save_last(12, _state(12), {'best_step': 12, 'val': 0.5})
  checkpoints.close()
  _assert_is(_restored(tmp_path), 12)
  assert not (tmp_path / 'damaged').exists()


def _state(step):
  rng = np.random.default_rng(step)
  return {'w': rng.standard_normal(3000, np.float32), 'step': np.array(step)}


@pytest.fixture(scope='module')
def two(tmp_path_factory) -> pathlib.Path:
  """Saves checkpoints of steps 4 and 8, each with its own best parameters."""
  folder = tmp_path_factory.mktemp('two')
  checkpoints = Checkpoints(folder)
  for step in (4, 8):
    checkpoints.save_best(step, _state(-step % 100))
    checkpoints.save_last(step, _state(step), {'best_step': step, 'val': 0.5})
  checkpoints.close()
  return folder


def _restored(folder):
  """Restores a checkpoint; returns (step, progress, state, best)."""
  checkpoints = Checkpoints(folder)
  try:
    state, progress = checkpoints.restore_last(_state(0), _state(0))
    step = progress['best_step']
    return step, progress, state, checkpoints.restore_best(step, _state(0))
  finally:
    checkpoints.close()


def _assert_is(restored, step):
  number, progress, state, best = restored
  assert (number, progress) == (step, {'best_step': step, 'val': 0.5})
  for got, want in ((state, _state(step)), (best, _state(-step % 100))):
    for name in ('w', 'step'):
      np.testing.assert_array_equal(got[name], want[name])


def _files(folder, step):
  return sorted(
      p.relative_to(folder) for kind in ('best', 'last')
      for p in (folder / kind / str(step)).rglob('*') if p.is_file())


def _flip(path, place):
  damage.flip_a_bit(path, int(place * (path.stat().st_size - 1)))


@pytest.mark.full
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_a_flipped_bit_is_never_taken_for_what_was_saved(
    two, tmp_path, capfd):
  """After a bit flip the newest checkpoint is intact or the older one is used.

  Each file is damaged in turn.
  """
  used = []
  for file in _files(two, 8):
    for place in (0.1, 0.5, 0.9):
      folder = tmp_path / str(len(used))
      shutil.copytree(two, folder)
      _flip(folder / file, place)
      restored = _restored(folder)
      used.append(restored[0])
      _assert_is(restored, restored[0])
      said = capfd.readouterr().err
      if restored[0] == 4:
        assert ' is damaged' in said and 'from step 4' in said
        assert f'/{file.parts[0]}/8' in said
      else:
        assert 'damaged' not in said
  assert used.count(4) >= len(used) // 4, used


@pytest.mark.parametrize('item', ['memory', 'state'])
@pytest.mark.parametrize('error', [
    PermissionError(13, 'Permission denied'), OSError(116, 'Stale handle'),
    ValueError('PERMISSION_DENIED: Error opening "d/1"'),
    ValueError("UNKNOWN: Error opening: [os_error_code='5'] [spec='{}']"),
    ValueError("RESOURCE_EXHAUSTED: Error: [spec='{}'] [os_error_code='24']")])
@pytest.mark.parametrize('within', [False, True])
def test_what_may_not_be_read_is_not_damaged(
    two, tmp_path, monkeypatch, error, item, within):
  folder = tmp_path / 'copy'
  shutil.copytree(two, folder)
  restore = ocp.Checkpointer.restore

  def refused(self, path, **kwargs):
    if item in path.parts:
      if within:
        raise ValueError('it cannot be restored') from error
      raise error
    return restore(self, path, **kwargs)

  with monkeypatch.context() as patch:
    patch.setattr(ocp.Checkpointer, 'restore', refused)
    with pytest.raises(UserError, match=f'Cannot read .*8/{item}'):
      _restored(folder)
  assert not (folder / 'damaged').exists()
  _assert_is(_restored(folder), 8)


@pytest.mark.parametrize('number', [2, 20])
def test_what_the_storage_does_not_have_is_damaged(
    two, tmp_path, monkeypatch, number):
  shutil.copytree(two, tmp_path, dirs_exist_ok=True)
  restore = ocp.Checkpointer.restore

  def refused(self, path, **kwargs):
    if {'8', 'state'} <= set(path.parts):
      raise ValueError(f"NOT_FOUND: Error [os_error_code='{number}']")
    return restore(self, path, **kwargs)

  monkeypatch.setattr(ocp.Checkpointer, 'restore', refused)
  _assert_is(_restored(tmp_path), 4)


def test_the_arrays_themselves_are_summed(two, tmp_path, capfd):
  """A valid file with wrong numbers is found by the arrays' checksums."""
  for kind in ('best', 'last'):
    folder = tmp_path / kind
    shutil.copytree(two, folder)
    other = tmp_path / f'other-{kind}'
    checkpoints = Checkpoints(other)
    wrong = {**_state(8 if kind == 'last' else 92), 'step': np.array(9)}
    checkpoints.save_best(8, wrong)
    checkpoints.save_last(8, wrong, {'best_step': 8})
    checkpoints.close()
    item = {'best': 'best/8', 'last': 'last/8/state'}[kind]
    shutil.rmtree(folder / item)
    shutil.copytree(other / item, folder / item)
    _assert_is(_restored(folder), 4)
    assert item in capfd.readouterr().err


@pytest.mark.parametrize('name', [
    'best/8', 'best/8/default', 'last/8/state', 'last/8/memory'])
def test_what_is_missing_is_damaged(two, tmp_path, name, capfd):
  shutil.copytree(two, tmp_path, dirs_exist_ok=True)
  shutil.rmtree(tmp_path / name)
  _assert_is(_restored(tmp_path), 4)
  assert f'{name.removesuffix("/default")} is damaged' in (
      capfd.readouterr().err)
  _assert_is(_restored(tmp_path), 4)


def test_the_progress_is_summed(two, tmp_path, capfd):
  shutil.copytree(two, tmp_path, dirs_exist_ok=True)
  memory = tmp_path / 'last/8/memory/metadata'
  memory.write_text(memory.read_text().replace('"val": 0.5', '"val": 0.7'))
  _assert_is(_restored(tmp_path), 4)
  assert 'last/8/memory is damaged' in capfd.readouterr().err


def test_the_run_goes_on_from_the_one_before(two, tmp_path):
  """The run resumes from the older checkpoint and saves the newer one again."""
  shutil.copytree(two, tmp_path, dirs_exist_ok=True)
  shutil.rmtree(tmp_path / 'last/8/state')
  checkpoints = Checkpoints(tmp_path)
  checkpoints.restore_last(_state(0), _state(0))
  assert [p.name for p in (tmp_path / 'damaged').iterdir()] == ['last-8']
  checkpoints.save_best(8, _state(92))
  checkpoints.save_last(8, _state(8), {'best_step': 8, 'val': 0.5})
  checkpoints.close()
  _assert_is(_restored(tmp_path), 8)


def test_what_a_kept_state_names_is_kept(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  for step, best in ((2, 2), (4, 2), (6, 6), (8, 6), (10, 10), (12, 10)):
    if best == step:
      checkpoints.save_best(step, _state(-step % 100))
    checkpoints.save_last(step, _state(step), {'best_step': best, 'val': 0.5})
  checkpoints.wait()
  kept = {kind: sorted(
      int(p.name) for p in (tmp_path / kind).iterdir() if p.name.isdigit())
      for kind in ('last', 'best')}
  checkpoints.close()
  assert kept['last'] == [10, 12] and {10} <= set(kept['best']) <= {6, 10}


def test_all_damaged_is_one_sentence_that_names_each(two, tmp_path):
  shutil.copytree(two, tmp_path, dirs_exist_ok=True)
  (tmp_path / 'last/8/memory/metadata').write_text('[]')
  shutil.rmtree(tmp_path / 'best/4')
  with pytest.raises(UserError, match='last/8/memory is damaged.*best/4 is '
                     'damaged.*restore it, or delete'):
    _restored(tmp_path)
  assert not (tmp_path / 'damaged').exists()
  assert (tmp_path / 'last/8').exists()


def test_arrays_that_are_others_are_not_called_damaged(two):
  """If the model's code changed, the error does not advise deleting files."""
  checkpoints = Checkpoints(two)
  with pytest.raises(UserError, match=(
      r'last/8/state is not of this config: it has w, which .*--workdir')):
    checkpoints.restore_last({'step': np.array(0)})
  with pytest.raises(UserError, match='it has no v'):
    checkpoints.restore_last({**_state(0), 'v': np.zeros(3)})
  with pytest.raises(UserError, match=r'w is \[.*\] in .*, \[2, 9\] in'):
    checkpoints.restore_last({**_state(0), 'w': np.zeros((2, 9))})
  narrow = {**_state(0), 'w': np.zeros(3000, np.float16)}
  with pytest.raises(UserError, match='w is float32 in .*, float16 in'):
    checkpoints.restore_last(narrow)
  checkpoints.close()
  assert not (two / 'damaged').exists()


def test_damage_to_the_best_is_found_when_it_is_scored(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save_best(4, _state(4))
  checkpoints.wait()
  largest = max((tmp_path / 'best/4').rglob('*'), key=lambda p: (
      p.is_file() and p.stat().st_size))
  _flip(largest, 0.5)
  with pytest.raises(UserError, match='best/4 is damaged.*same command'):
    checkpoints.restore_best(4, _state(0))
  checkpoints.close()
