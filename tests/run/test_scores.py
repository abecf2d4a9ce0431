"""Tests which parameters, split and steps a run scores and logs."""

import json

import numpy as np
import pytest

from lra import data_prep
from lra.core import files
from lra.data import prepared
from lra.run import train
from lra.run.checkpoint import Checkpoints
from tests.helpers import small

pytestmark = pytest.mark.usefixtures('quick_runs')


def _logged(folder, split):
  """Returns the lines of metrics.jsonl for `split`, in order."""
  lines = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
  return [x for x in lines if x['split'] == split]


@pytest.fixture(scope='module')
def contradicted(tmp_path_factory):
  """Returns a config and the folder of its run; its last step is not its best.

  Training labels are 1 and validation labels 0, so training lowers the score.
  The splits differ in size.
  """
  folder = tmp_path_factory.mktemp('contradicted')
  expressions = {
      'train': [(f'[MIN 1 {i} {j} ]', 1)
                for i in range(1, 7) for j in range(1, 7)],
      'val': [(f'[MIN 0 {i} ]', 0) for i in range(10)],
      'test': [(f'[MAX {i} {j} ]', i) for j in range(2) for i in range(1, 9)]}
  for split, rows in expressions.items():
    (folder / f'basic_{split}.tsv').write_text('Source\tTarget\n' + ''.join(
        f'{source}\t{target}\n' for source, target in rows))
  data_prep.prepare('listops', folder / 'data', folder)
  c = small.config(
      'simpletron', 'listops', steps=6, eval_every=2, log_every=2,
      learning_rate=0.05, warmup_steps=0)
  c.data_dir = str(folder / 'data')
  assert train.train(small.experiment(c, folder / 'run')).status == 'ok'
  return c, folder / 'run'


@pytest.mark.full
def test_the_saved_best_is_what_is_scored(contradicted):
  c, folder = contradicted
  result = files.read_json(folder / 'result.json')
  assert result['best_step'] < result['steps']
  p = small.make(c, 4)
  shape = p.state_shape
  checkpoints = Checkpoints(folder / 'checkpoints')
  best = checkpoints.restore_best(result['best_step'], {
      'params': shape.params, 'constants': shape.constants})
  last, _ = checkpoints.restore_last(shape)
  checkpoints.close()
  last = {'params': last.params, 'constants': last.constants}
  test = prepared.load(c.task, c.data_dir).splits['test']
  best, last = (
      p.objective.scores(
          p.evaluate(p.compile_eval(), scored, test))['loss']
      for scored in (best, last))
  assert result['test']['loss'] == pytest.approx(best, rel=1e-5)
  assert best != pytest.approx(last, rel=1e-2)


def test_scores_are_of_the_split_they_name(contradicted):
  c, folder = contradicted
  result = files.read_json(folder / 'result.json')
  splits = prepared.load(c.task, c.data_dir).splits
  assert len({len(split) for split in splits.values()}) == 3
  for name in ('val', 'test'):
    labels = np.bincount(splits[name].labels, minlength=10)
    assert np.sum(result[name]['confusion'], axis=1).tolist() == (
        labels.tolist())


@pytest.mark.full
def test_a_logged_loss_is_of_the_steps_since_the_last_one(
    contradicted, tmp_path):
  c, folder = contradicted
  c = c.copy_and_resolve_references()
  c.train.log_every = 1
  train.train(small.experiment(c, tmp_path))
  two, one = (_logged(f, 'train')
              for f in (folder, tmp_path))
  assert [x['step'] for x in two] == [2, 4, 6]
  for field in ('loss', 'accuracy'):
    means = np.reshape([x[field] for x in one], (3, 2)).mean(axis=1)
    assert [x[field] for x in two] == pytest.approx(means, rel=1e-5)
  assert two[1]['loss'] != pytest.approx(two[0]['loss'], rel=1e-2)


def test_the_logged_rate_is_that_of_the_last_update(contradicted):
  """Without warmup, update s has the learning rate base / sqrt(s)."""
  logged = _logged(contradicted[1], 'train')
  assert [x['learning_rate'] for x in logged] == pytest.approx(
      [0.05 / s**0.5 for s in (2, 4, 6)], rel=1e-5)


@pytest.mark.full
def test_the_average_of_the_weights_is_scored(contradicted, tmp_path):
  """With a decay near 1 the average, and so the score, stays at its start."""
  c, _ = contradicted
  c = c.copy_and_resolve_references()
  c.optim.ema = 1 - 1e-7
  train.train(small.experiment(c, tmp_path))
  losses = [x['loss'] for x in _logged(tmp_path, 'val')]
  assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
  p = small.make(c, 4)
  start = p.init()
  val = prepared.load(c.task, c.data_dir).splits['val']
  scores = p.objective.scores(p.evaluate(p.compile_eval(), {
      'params': start.params, 'constants': start.constants}, val))
  assert losses[0] == pytest.approx(scores['loss'], rel=1e-5)


@pytest.mark.full
def test_last_checkpoint_can_be_scored(contradicted, tmp_path):
  c = contradicted[0].copy_and_resolve_references()
  c.train.select = 'last'
  result = train.train(small.experiment(c, tmp_path))
  assert result.best_step == 6
  assert result.val.accuracy == _logged(tmp_path, 'val')[-1]['accuracy']
