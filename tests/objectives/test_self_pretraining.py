"""The objectives of self-pretraining, and runs in two phases."""

import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lra
from lra.core import tasks
from lra.core.errors import UserError
from lra.data import batches, prepared
from lra.objectives import masked
from lra.run import train, warm_start
from tests.helpers import small, tiny
from tests.helpers.paths import ROOT


def made(name, model='transformer', task='listops_mini'):
  c = small.config(model, task)
  c.objective = name
  return small.make(c)


def split(rng, task, count=200, length=24):
  """Returns random documents of a task, some of them short."""
  task = tasks.get(task)
  lengths = rng.integers(3, length + 1, count * (1 + task.dual))
  offsets = np.concatenate([[0], np.cumsum(lengths)])
  tokens = rng.integers(0, task.vocab_size - 1, offsets[-1], np.uint8)
  pairs = np.arange(2 * count).reshape(count, 2) if task.dual else None
  return prepared.Split(tokens, offsets, np.zeros(count, np.int64), pairs)


@pytest.mark.parametrize('task, share', [
    ('text', 0.15), ('retrieval', 0.15), ('listops', 0.1), ('image', 0.5)])
def test_so_many_tokens_are_hidden_and_no_other_changes(task, share):
  """The shares of Amos et al. 2024."""
  objective = made('masked', task=task).objective
  data = split(np.random.default_rng(0), task)
  plain = batches.gather(data, np.arange(200), 24)['tokens']
  batch = objective.batch(data, np.arange(200), seed=3, step=7)
  hidden = batch['weights'] > 0
  np.testing.assert_array_equal(batch['tokens'][~hidden], plain[~hidden])
  np.testing.assert_array_equal(batch['labels'][hidden] + 1, plain[hidden])
  assert (batch['tokens'][hidden] == -1).all() and (plain[hidden] > 0).all()
  assert (hidden.any(axis=-1)).all()
  # Of n tokens, share * n are hidden, or one if none is: at least 3 tokens.
  n = (plain > 0).sum(axis=-1)
  expected = (n * share + (1 - share)**n).sum()
  assert hidden.sum() == pytest.approx(
      expected, abs=5 * np.sqrt(n.sum() * share * (1 - share)))


def test_masks_vary_over_steps_and_seeds_but_not_over_validations():
  objective = made('masked').objective
  data = split(np.random.default_rng(0), 'listops_mini')
  def drawn(seed, step, indices=range(100)):
    return objective.batch(data, np.array(indices), seed=seed,
                           step=step)['weights']
  assert (drawn(0, 0) == drawn(0, 0)).all()
  for other in (drawn(0, 1), drawn(1, 0), drawn(0, -1)):
    assert (drawn(0, 0) != other).any()
  assert (drawn(0, -1) == drawn(5, -2)).all()
  # Each of several processes makes some rows of a batch.
  np.testing.assert_array_equal(
      drawn(2, 9, range(40, 60)), drawn(2, 9)[40:60])


@pytest.mark.parametrize('model', ['transformer', 'retnet'])
def test_a_hidden_token_is_one_whose_embedding_is_zero(model):
  program = made('masked', model)
  state = program.init()
  tokens = np.array(np.random.default_rng(0).integers(1, 9, (3, 24)), np.int16)
  tokens[:, 20:] = 0
  marked = np.where(tokens == 4, -1, tokens)
  zero = jax.tree.map(jnp.copy, state.params)
  table = zero['encoder']['embedding']['embedding']
  zero['encoder']['embedding']['embedding'] = table.at[4].set(0)
  apply = lambda params, ids: np.asarray(program.model.apply(
      {'params': params, **state.constants}, ids, train=False))
  out = apply(state.params, marked)
  assert out.shape == (3, 24, program.objective.num_classes)
  small.assert_close(out, apply(zero, tokens), 1e-5)
  assert np.abs(out - apply(state.params, tokens)).max() > 1e-3


def test_loss_and_accuracy_are_those_of_the_hidden_tokens():
  objective = made('masked', task='retrieval').objective
  rng = np.random.default_rng(0)
  C = objective.num_classes
  scores = []
  sums = np.zeros(3)
  for _ in range(2):
    logits = rng.normal(size=(4, 2, 24, C)).astype(np.float32)
    labels = rng.integers(0, C, (4, 2, 24)).astype(np.int32)
    weights = (rng.random((4, 2, 24)) < 0.2).astype(np.float32)
    scores.append(jax.device_get(objective.count(
        logits, {'labels': labels, 'weights': weights})))
    chosen = logits.astype(np.float64)[weights > 0]
    wanted = labels[weights > 0]
    chances = np.log(np.exp(chosen).sum(-1)) - chosen[
        np.arange(len(wanted)), wanted]
    sums += [chances.sum(), (chosen.argmax(-1) == wanted).sum(), len(wanted)]
  found = objective.scores(scores)
  assert found['loss'] == pytest.approx(sums[0] / sums[2], rel=1e-5)
  assert found['accuracy'] == pytest.approx(sums[1] / sums[2], rel=1e-6)


def test_the_next_token_is_predicted():
  c = small.config('retnet', 'listops_mini')
  c.objective, c.model.direction, c.encoder.pooling = 'causal', 'causal', 'mean'
  objective = small.make(c).objective
  data = split(np.random.default_rng(0), 'listops_mini', 20)
  batch = objective.batch(data, np.arange(20), seed=0, step=0)
  for i in range(20):
    codes = data.tokens[data.offsets[i]:data.offsets[i + 1]][:24]
    asked = batch['weights'][i] > 0
    assert asked.sum() == len(codes) - 1 and asked[:len(codes) - 1].all()
    np.testing.assert_array_equal(batch['labels'][i][asked], codes[1:])


@pytest.mark.parametrize('name, model, task', [
    ('causal', 'transformer', 'listops_mini'),
    ('masked', 'transformer', 'mqar')])
def test_objectives_that_cannot_teach_are_refused(name, model, task):
  with pytest.raises(UserError, match=f'objective={name}'):
    made(name, model, task)


@pytest.mark.full
def test_a_run_begins_with_the_encoder_of_its_first_phase(
    tmp_path, monkeypatch):
  """With a learning rate of 0 in the second phase, its encoder stays."""
  monkeypatch.chdir(tmp_path)
  c = small.config('performer', 'listops_mini', steps=4, eval_every=4,
                   warmup_steps=1, log_every=4)
  c.train.learning_rate, c.pretrain.learning_rate = 0.0, 0.01
  c.pretrain.objective, c.pretrain.steps = 'masked', 6
  run = small.experiment(c)
  first = run.source
  assert first.config.train.steps == 6 and first.folder != run.folder
  assert not masked.Objective.supervised
  found = train.train(first, tested=False)
  assert found.status == 'validated' and found.baselines == {}
  assert train.train(run).status == 'ok'
  one, two = (warm_start.names_of(
      jax.device_get(loaded.params), jax.device_get(loaded.constants))
      for loaded in map(lra.load, (first.folder, run.folder)))
  kept = [name for name in two if 'encoder/' in name]
  assert len(kept) > 10 and any(not n.startswith('encoder') for n in kept)
  for name in kept:
    np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.full
def test_kill_9_in_either_phase_changes_nothing(mini_data, tmp_path):
  def begin(folder):
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, ROOT / 'run_lra.py', '--norecord',
         '--config=configs/transformer.py:listops_mini,pretrain=masked',
         '--config.pretrain.steps=80', *tiny.flags(**{
             'data_dir': mini_data, 'train.steps': 60, 'train.eval_every': 20,
             'train.log_every': 10, 'train.checkpoint_minutes': 0.001,
             'train.eval_batch_size': 4})],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env={**os.environ, 'JAX_PLATFORMS': 'cpu'})

  def points(folder):
    return sum(path.read_text().count('\n')
               for path in folder.glob('runs/*/*/*/metrics.jsonl'))

  whole, broken = tmp_path / 'whole', tmp_path / 'broken'
  process = begin(whole)
  assert process.wait() == 0, process.stderr.read()
  for enough in (4, 15):  # 12 points belong to the first phase
    process = begin(broken)
    while points(broken) < enough and process.poll() is None:
      time.sleep(0.05)
    assert process.poll() is None
    process.kill()
    process.wait()
  process = begin(broken)
  assert process.wait() == 0, process.stderr.read()
  folders = sorted(path.parent.relative_to(whole)
                   for path in whole.glob('runs/*/*/*/result.json'))
  assert len(folders) == 2
  for folder in folders:
    one, two = (warm_start.names_of(
        jax.device_get(loaded.params), jax.device_get(loaded.constants))
        for loaded in (lra.load(whole / folder), lra.load(broken / folder)))
    assert one.keys() == two.keys()
    for name in one:
      assert one[name].tobytes() == two[name].tobytes(), name
