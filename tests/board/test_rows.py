"""Tests which results share a row, and the names of rows."""

import copy
import json
import pathlib
import types

import numpy as np
import pytest

from lra.board import frame, rows
from lra.board.tables import lines
from lra.core import paths, tasks
from lra.schema import fields, identity, result

pytestmark = pytest.mark.usefixtures('no_protocols')
RUN = json.loads(
    (pathlib.Path(__file__).parent / 'data' / 'result.json').read_text())


def load(folder, *configs):
  """Writes a run for each config, with seeds 0, 1, ...; returns the rows."""
  for seed, config in enumerate(configs):
    run = copy.deepcopy(RUN) | {'seed': seed}
    run['config'] = config | {'seed': seed}
    run['test']['loss'] += seed / 100  # else it counts as a copy
    (folder / f'{seed}.json').write_text(json.dumps(run))
  boards, left_out = frame.load(folder, folder / 'none')
  assert not left_out
  return [row for board in boards for row in lines(board.rows)]


def test_committed_records_have_the_name_of_their_identity():
  for path in (paths.PACKAGED / 'runs').rglob('*.json'):
    run = result.read(path)
    name = f'{run.model}-{identity.run_name(run.config)}'
    if run.search:
      name = name.replace('-s', f'-{run.search.digest}-s')
    assert path.stem == name


@pytest.fixture
def clip(monkeypatch):
  """Declares a new field `optim.clip`; earlier runs did not clip."""
  monkeypatch.setitem(fields.LATER, 'optim.clip', 0.0)


def old():
  return copy.deepcopy(RUN['config'])


def new(clip):
  return old() | {'optim': {'clip': clip}}


def test_runs_with_and_without_a_later_field_share_a_row(clip, tmp_path):
  row, = load(tmp_path, old(), new(0.0))
  assert [run.seed for run in row.row.runs] == [0, 1] and not row.variant


def test_another_value_of_a_later_field_names_two_rows(clip, tmp_path):
  one, two = sorted(load(tmp_path, old(), new(0.0), new(1.0)),
                    key=lambda row: row.row.runs[0].seed)
  assert one.variant == 'optim.clip=0.0' and one.runs == 2
  assert two.variant == 'optim.clip=1.0' and two.runs == 1


def test_a_later_argument_of_a_model_is_no_other_row(monkeypatch, tmp_path):
  monkeypatch.setitem(
      fields.ADDED_TO_MODELS, 'transformer', {'eps': 1e-6, 'scale': None})
  changed = old()
  changed['model'] |= {'eps': 1e-6, 'scale': None}
  assert len(load(tmp_path, old(), changed)) == 1
  changed['model']['eps'] = 1e-4
  assert sorted(row.variant for row in load(tmp_path, old(), changed)) == [
      'model.eps=0.0001', 'model.eps=1e-06']


def test_without_declaration_a_field_names_two_rows(tmp_path):
  assert sorted(row.variant for row in load(tmp_path, old(), new(0.0))) == [
      'optim.clip=0.0', 'optim.clip=unset']


@pytest.mark.parametrize('task, answers', [
    ('listops', 1), ('mqar', 32), ('selective_copying', 8), ('parity', 1)])
def test_answers_of_one_sequence_are_one_example(task, answers):
  """Wilson's interval counts the sequences, 100 per class, not the answers."""
  run = copy.deepcopy(RUN) | {'task': task}
  run['config']['task'] = task
  classes = tasks.get(task).num_classes
  one = np.eye(classes, dtype=int)
  matrix = answers * (65 * one + 35 * np.roll(one, 1, axis=1))
  for split in ('val', 'test'):
    run[split] |= dict.fromkeys(
        ('accuracy', 'precision', 'recall', 'f1'), 0.65)
    run[split]['confusion'] = matrix.tolist()
  one, sequences = rows.Row([result.validate(run)]), 100 * classes
  assert one.sample.examples == sequences
  for end in (one.interval.low, one.interval.high):
    assert (0.65 - end)**2 == pytest.approx(
        1.959964**2 * end * (1 - end) / sequences, rel=1e-4)


def test_data_directory_and_seed_are_no_other_row(tmp_path):
  row, = load(tmp_path, old(), old() | {'data_dir': 'elsewhere'})
  assert row.runs == 2 and row.variant == ''


def baselines_of(tmp_path, claims, fingerprint=RUN['data_fingerprint']):
  """Returns a board with a measured baseline and a run that claims others."""
  runs, measured = tmp_path / 'runs', tmp_path / 'floors'
  for folder in (runs, measured):
    folder.mkdir()
  (runs / 'run.json').write_text(json.dumps(RUN | {'floors': claims}))
  (measured / 'text_mini.json').write_text(json.dumps({
      'task': 'text_mini', 'fingerprint': fingerprint,
      'floors': {'majority': {'accuracy': 0.5, 'how': 'the commonest'}}}))
  (board,), left_out = frame.load(runs, measured)
  assert not left_out
  return board


@pytest.mark.parametrize('claims', [
    {'<b>f</b>': 0.999}, {'majority': 0.999}, {'majority': 0.1}, {}])
def test_a_baseline_that_a_run_claims_does_not_count_beside_measured_ones(
    tmp_path, claims):
  board = baselines_of(tmp_path, claims)
  assert [(f.name, f.accuracy) for f in board.baselines] == [('majority', 0.5)]
  assert list(board.rows.baseline) == [0.5]


def test_on_other_data_the_baselines_of_runs_are_all_there_are(tmp_path):
  board = baselines_of(tmp_path, {'mine': 0.6}, 'beef00000000')
  assert [(f.name, f.accuracy) for f in board.baselines] == [
      ('majority', 0.5), ('mine', 0.6)]
  assert list(board.rows.baseline) == [0.6]


def test_attention_keeps_keys_and_values_of_tokens_and_cls():
  """Records of earlier versions have no state size."""
  def size(pooling, state_size=None):
    config = {'seq_len': 24, 'encoder': {'width': 16, 'pooling': pooling},
              'model': {'name': 'transformer', 'num_heads': 2, 'qkv_width': 16}}
    return rows.Row([types.SimpleNamespace(
        state_size=state_size, config=config, task='text_mini')]).state_size
  assert size('mean') == 2 * 24 * 16
  assert size('cls') == 2 * 25 * 16
  assert size('cls', state_size=7) == 7


@pytest.mark.parametrize('changes, label', [
    ({}, ''), ({'train.steps': 5}, 'steps 1000'),
    # What the other row shares comes last, then what is longer.
    ({'train.steps': 5, 'encoder.pooling': 'x', 'encoder.width': 1,
      'model.name': 'y'}, 'width 64, steps 1000'),
    ({'optim.groups': ''}, 'frozen random q, k, v'),
    ({'optim.groups': '', 'init_source': ''}, 'transferred q, k, v')])
def test_a_changed_row_has_a_declared_name_or_two_changes(changes, label):
  config = {'train': {'steps': 1000}, 'model': {'name': 'transformer'},
            'encoder': {'pooling': 'mean', 'width': 64}, 'init_source': 'a',
            'optim': {'groups': r"((r'.*/(query|key|value)/.*', None),)"}}
  own, other = (types.SimpleNamespace(
      config=config | {'train': {'steps': steps}}, unsearched=unsearched)
                for steps, unsearched in ((1000, changes), (
                    9, {'encoder.pooling': 'x', 'model.name': 'y'})))
  assert rows.labels([own, other])[0] == label
