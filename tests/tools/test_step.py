"""Tests the timing of training steps, on random tokens."""

import pytest

from lra.run import program
from tests.helpers import small
from tools import step


@pytest.mark.full
@pytest.mark.parametrize('model, task', [
    ('local', 'pathx'), ('transformer', 'retrieval')])
def test_a_step_is_timed_without_its_data(tmp_path, model, task):
  config = small.config(model, task)
  config.data_dir = str(tmp_path / 'none')
  got = step.measure(small.experiment(config), steps=2)
  made = small.make(config, None)
  counts = program.count_parameters(made.state_shape)
  assert {name: got[name] for name in counts} == counts
  assert (got['model'], got['task'], got['steps']) == (model, task, 2)
  assert got['length'] == made.objective.seq_len and got['drawn_tokens']
  assert got['bare_s_per_step'] > 0 and got['compile_seconds'] > 0
  assert got['step_bytes'] > 0 and not list(tmp_path.iterdir())


def test_tokens_fill_the_length_and_labels_are_classes():
  made = small.make(small.config('local', 'retrieval'), None)
  batch = step.drawn_batch(made)
  task = made.objective.task
  assert {k: (v.shape, v.dtype) for k, v in batch.items()} == (
      made.shapes(
          made.config.train.batch_size // made.sizes.microbatch,
          made.sizes.microbatch, micro=True))
  assert 1 <= batch['tokens'].min() <= batch['tokens'].max() < task.vocab_size
  assert 0 <= batch['labels'].min() <= batch['labels'].max() < task.num_classes
  assert (batch['weights'] == 1).all()
