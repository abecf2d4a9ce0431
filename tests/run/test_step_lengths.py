"""Tests that cutting off padding saves work and keeps results."""

import functools

import jax
import numpy as np
import pytest

from lra.core import bits
from lra.data import batches, prepared
from lra.data.prepared import Split
from lra.run import step, train
from tests.helpers import small


def _split(task, n=24):
  """Returns a split whose examples have 1 to 24 tokens."""
  rng = np.random.default_rng(0)
  sizes = rng.permutation(n) + 1
  offsets = np.concatenate([[0], np.cumsum(sizes)])
  pairs = rng.integers(0, n, (n, 2)).astype(np.int32) if task.dual else None
  return Split(rng.integers(0, 15, offsets[-1]).astype(np.uint8), offsets,
               rng.integers(0, 2, n).astype(np.int32), pairs)


def _program(task, at, model='transformer', devices=1, **train):
  c = small.config(model, task, lengths=at, batch_size=16,
                   microbatch_size=4, **train)
  c.encoder.dropout = 0.0
  c.encoder.pooling = 'mean'
  return small.make(c, devices)


@functools.cache
def _updated(task, at, model='transformer', devices=1):
  """Returns parameters and sums after one update from a fixed start."""
  p = _program(task, at, model, devices)
  split = _split(p.objective.task)
  batch = batches.train_batch(
      functools.partial(p.objective.batch, split), len(split), batch_size=16,
      microbatch_size=4, seed=0, step=0, lengths=prepared.lengths(split))
  state, _ = p.compile_train()(p.init(), batch, p.put_given())
  return jax.device_get((state.params, state.sums))


@pytest.mark.full
@pytest.mark.parametrize('task, model, devices', [
    ('listops', 'transformer', 1), ('listops', 'linformer', 1),
    ('listops', 'transformer', 4), ('retrieval_rfc', 'simpletron', 1)])
def test_an_update_stays_the_same(task, model, devices):
  at = (7, 16) if (model, devices) == ('transformer', 1) else (16,)
  got = _updated(task, at, model, devices)
  small.assert_close(got, _updated(task, (), model))


@pytest.mark.full
def test_a_whole_run_stays_the_same(mini_data, tmp_path):
  """A run with `lengths` keeps its order, validation and predictions."""
  results = []
  for at in ((), (8, 16)):
    c = small.config(
        'transformer', 'listops_mini', lengths=at, steps=20, eval_every=10,
        batch_size=8, microbatch_size=4, eval_batch_size=40)
    c.data_dir, c.seq_len = str(mini_data), 0
    c.encoder.dropout, c.encoder.pooling = 0.0, 'mean'
    results.append(train.train(small.experiment(c, tmp_path / f'run{len(at)}')))
  a, b = results
  assert a.best_step == b.best_step
  assert a.test.loss == pytest.approx(b.test.loss, rel=1e-3)
  # Rounding may change the class of an example with almost equal logits.
  differ = bits.unpack(a.test.correct, a.test.examples) != bits.unpack(
      b.test.correct, b.test.examples)
  assert differ.mean() < 0.02 and 0.05 < a.test.accuracy < 1


@pytest.mark.full
def test_scores_stay_the_same():
  scores = []
  for at in ((), (7, 16)):
    p = _program('listops', at, eval_batch_size=5)
    split = _split(p.objective.task)
    state = p.init()
    scored = {'params': small.random_params(p), 'constants': state.constants}
    counts = p.evaluate(p.compile_eval(), scored, split)
    order = p.order(split)
    scores.append({**p.objective.scores(counts),
                   **p.objective.analysis(counts, order, split, split)})
    if at:
      assert (np.diff(prepared.lengths(split)[order]) >= 0).all()
  assert scores[0]['confusion'] == scores[1]['confusion']
  assert scores[0]['correct'] == scores[1]['correct']
  assert scores[0]['loss'] == pytest.approx(scores[1]['loss'], rel=1e-5)


def test_the_shortest_length_that_holds_all_tokens_is_chosen():
  """Padding may stand between tokens, as black pixels do."""
  objective = _program('listops', ()).objective

  def chosen(*places):
    tokens = np.zeros((2, 24), np.int16)
    tokens[1, list(places)] = 3
    return int(step.at_fitting(
        lambda batch: np.int32(batch['tokens'].shape[-1]), objective,
        (7, 16, 24), {'tokens': tokens}))

  assert [chosen(), chosen(6), chosen(0, 7), chosen(15), chosen(3, 16),
          chosen(23)] == [7, 7, 16, 16, 24, 24]


@pytest.mark.parametrize('model, changes, want', [
    ('transformer', {}, (7, 16, 24)),
    ('bigbird', {}, (7, 16, 24)),
    ('transformer', {'mask_padding': False}, (24,)),
    ('transformer', {'mean_over': 'positions'}, (24,)),
    ('transformer', {'seq_len': 16}, (7, 16))])
def test_only_padding_that_takes_no_part_is_cut(model, changes, want):
  c = small.config(model, 'listops', lengths=(16, 7, 30))
  c.encoder.pooling = 'mean'
  for name, value in changes.items():
    (c.encoder if name in c.encoder else c)[name] = value
  assert small.experiment(c).lengths == want
