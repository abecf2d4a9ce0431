"""Adds masked token prediction, an objective unlike those of the project.

Its labels are [B, L], and it has no accuracy. This file alone defines it; the
training step and the loop are unchanged.
"""

import json
import math
import sys
import types

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lra import objectives
from lra.data import batches
from lra.objectives import base
from lra.run import train
from tests.helpers import small


class TokenModel(nn.Module):
  encoder: nn.Module
  vocab_size: int

  @nn.compact
  def __call__(self, inputs, *, train):
    x, _ = self.encoder(inputs, train=train)
    return nn.Dense(self.vocab_size, name='logits')(x)


class Objective(base.Objective):
  """Predicts the ids that were replaced by 1."""
  sums = ('loss',)

  def model(self, encoder, dtype):
    return TokenModel(encoder, self.task.vocab_size)

  def batch(self, split, indices, *, seed, step):
    whole = batches.gather(split, indices, self.seq_len)['tokens']
    rng = np.random.default_rng([seed, step + 2**20])
    hidden = (rng.random(whole.shape) < 0.15) & (whole > 0)
    hidden[:, 0] = True
    return {'tokens': np.where(hidden, 1, whole).astype(np.int16),
            'labels': whole.astype(np.int32),
            'weights': hidden.astype(np.float32)}

  def shapes(self, *lead):
    return {'tokens': ((*lead, self.seq_len), np.dtype(np.int16)),
            'labels': ((*lead, self.seq_len), np.dtype(np.int32)),
            'weights': ((*lead, self.seq_len), np.dtype(np.float32))}

  def loss(self, outputs, batch):
    each = optax.softmax_cross_entropy_with_integer_labels(
        outputs.astype(jnp.float32), batch['labels'])
    return {'loss': jnp.sum(each * batch['weights']),
            'weight': jnp.sum(batch['weights'])}

  def metrics(self, sums):
    return {'loss': sums['loss'] / sums['weight']}

  def count(self, outputs, batch):
    return self.loss(outputs, batch)

  def scores(self, counts):
    loss, weight = (sum(float(c[k]) for c in counts)
                    for k in ('loss', 'weight'))
    return {'loss': loss / weight, 'perplexity': math.exp(loss / weight)}

  def better(self, scores, best):
    return scores['loss'] < best['loss']


@pytest.fixture
def masked_tokens(monkeypatch):
  module = types.ModuleType('lra.objectives.masked_tokens')
  module.Objective = Objective
  monkeypatch.setitem(sys.modules, module.__name__, module)
  monkeypatch.setattr(
      objectives, 'names', lambda: ('classification', 'masked_tokens'))


@pytest.mark.full
def test_trains_validates_and_scores(
    masked_tokens, mini_data, tmp_path):
  c = small.config('transformer', 'listops_mini', steps=60, eval_every=20,
                   log_every=20, learning_rate=0.02, warmup_steps=5)
  c.objective, c.optim.schedule = 'masked_tokens', 'constant'
  c.encoder.pooling, c.data_dir = 'mean', str(mini_data)
  result = train.train(small.experiment(c, tmp_path))
  assert result.status == 'ok'
  assert set(result.test.model_dump()) == {'loss', 'perplexity'}
  lines = [json.loads(x) for x in
           (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  losses = [x['loss'] for x in lines if x['split'] == 'val']
  assert len(losses) == 3 and losses[-1] < losses[0]
  assert result.val.loss == min(losses)
  assert (tmp_path / 'curves.png').exists()
