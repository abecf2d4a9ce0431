"""Tests which records count as one seed: copies, and runs on other hardware."""

import copy
import json
import pathlib

import pytest

from lra.board import frame
from lra.board.tables import lines
from lra.core import bits
from lra.schema import identity, result
from tests.helpers import scored

RUN = json.loads(
    (pathlib.Path(__file__).parents[1] / 'board/data/result.json').read_text())
# Hardware settings, which change no score.
FITTED = {
    'train.log_every': 7, 'train.mixer_std': True,
    'train.checkpoint_minutes': 1.0,
    'train.eval_batch_size': 3, 'train.microbatch_size': 1,
    'train.cpu_eval_batch_size': 3, 'train.cpu_microbatch_size': 1,
    'train.lengths': [64, 128], 'encoder.remat': True}


class Place:
  """A folder with records of one row."""

  def __init__(self, folder):
    self.folder = folder / 'runs'
    self.folder.mkdir()

  def put(self, name, seed, fit=None, scores=None, **fields):
    """Writes a record, with a loss of its own unless `scores` has one."""
    run = copy.deepcopy(RUN) | fields | {'seed': seed}
    run['config']['seed'] = seed
    run['test'] |= {'loss': 0.5 + seed / 100} | (scores or {})
    for field, value in (fit or {}).items():
      group, key = field.split('.')
      run['config'].setdefault(group, {})[key] = value
    path = self.folder / (name or result.validate(run).record_path)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(run))
    return path

  def load(self):
    """Returns the rows, and {file: why it is left out}."""
    boards, left_out = frame.load(self.folder, self.folder / 'none')
    return ([row for board in boards for row in lines(board.rows)],
            {left.name: left.why for left in left_out})


@pytest.fixture
def place(tmp_path):
  return Place(tmp_path)


def test_a_copy_with_another_seed_is_no_seed(place):
  place.put('z.json', 1, scores={'loss': 0.5})
  place.put('a.json', 4, scores={'loss': 0.5})
  place.put('b.json', 2)
  (row,), left_out = place.load()
  assert [run.seed for run in row.row.runs] == [1, 2]
  assert left_out == {'runs/a.json': (
      'it has the loss and the answers of runs/z.json, which is seed 1, to the '
      'last digit: make the run again or delete it')}


OTHERS = [
    {'loss': 0.5 + 1e-15}, scored.of([[66, 34], [36, 64]]),
    {'correct': bits.pack([False] * 70 + [True] * 130)}]


@pytest.mark.parametrize('scores', OTHERS)
def test_seeds_that_share_some_scores_are_seeds(place, scores):
  same = {'loss': 0.5, 'correct': bits.pack([True] * 130 + [False] * 70)}
  place.put('a.json', 0, scores=same)
  place.put('b.json', 1, scores=same | scores)
  (row,), left_out = place.load()
  assert len(row.row.runs) == 2 and not left_out


@pytest.mark.parametrize('field', FITTED)
def test_seeds_that_were_fitted_to_other_machines_share_a_row(place, field):
  place.put('', 0)
  other = result.read(place.put('', 5, {field: FITTED[field]}))
  (row,), left_out = place.load()
  assert [run.seed for run in row.row.runs] == [0, 5] and not left_out
  assert not row.variant
  # The run directories differ, unless only sizes for a CPU differ: the hash has
  # those only if a config leaves its sizes to the machine.
  same = identity.config_hash(other.config) == identity.config_hash(
      row.row.runs[0].config)
  assert same == field.startswith('train.cpu_')


def test_the_fitting_fields_are_these():
  assert set(FITTED) == set(identity.FITTING_FIELDS)
  assert set(FITTED) < set(identity.FREE_FIELDS)


@pytest.mark.parametrize('field, value', [
    ('model.kernel', 'xla'), ('train.batch_size', 7)])
def test_what_changes_numbers_is_another_row(place, field, value):
  place.put('', 0, FITTED)
  place.put('', 1, {field: value})
  found, left_out = place.load()
  assert len(found) == 2 and not left_out
  assert sorted(row.variant for row in found if not row.row.changes)
  assert not any(name in row.variant for row in found for name in FITTED)


def test_seeds_of_two_dtypes_share_no_row(place):
  """With dtype=auto, one config has different dtypes on two machines."""
  place.put('', 0, dtype='float32')
  place.put('', 1, dtype='bfloat16')
  place.put('', 2, dtype='bfloat16')
  found, left_out = place.load()
  assert sorted(len(row.row.runs) for row in found) == [1, 2] and not left_out


@pytest.mark.parametrize('right', [(65, 60), (60, 65)])
def test_a_seed_that_was_repeated_on_another_machine_is_one(place, right):
  paths = []
  for hits, fit in zip(right, (FITTED, {'train.log_every': 7}), strict=True):
    paths.append(place.put('', 0, fit, scored.of(
        [[hits, 100 - hits], [100 - hits, hits]], loss=hits)))
  shown, other = sorted(path.name for path in paths)
  (row,), left_out = place.load()
  assert list(row.row.files) == [f'runs/text_mini/{shown}']
  assert left_out == {f'runs/text_mini/{other}': (
      f'it repeats the seed of runs/text_mini/{shown}, which is shown, with '
      'another encoder.remat and train.checkpoint_minutes and '
      'train.eval_batch_size and train.lengths and train.microbatch_size and '
      'train.mixer_std, which is no other row: delete one of them')}


@pytest.mark.parametrize('status, is_first', [
    ('oom', False), ('stopped', False), ('diverged', True)])
def test_of_a_repeated_seed_one_that_ended_is_shown(place, status, is_first):
  fits = sorted([{}, FITTED], key=lambda fit: place.put('', 0, fit).name)
  place.put('', 0, fits[0], status=status)
  (row,), _ = place.load()
  assert (row.row.runs[0].status == status) == is_first
