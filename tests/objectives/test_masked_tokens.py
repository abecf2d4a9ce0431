"""Adds an objective without an accuracy; loop and results need no change."""

import json
import math
import sys
import types

import pytest

from lra import objectives
from lra.objectives import masked
from lra.run import train
from tests.helpers import small


class Objective(masked.Objective):
  """Predicts hidden tokens, and is scored by its perplexity."""
  sums = ('loss',)

  def loss(self, outputs, batch):
    sums = super().loss(outputs, batch)
    return {name: sums[name] for name in ('loss', 'weight')}

  def metrics(self, sums):
    return {'loss': sums['loss'] / sums['weight']}

  def scores(self, counts):
    loss, weight = (sum(float(c[k]) for c in counts)
                    for k in ('loss', 'weight'))
    return {'loss': loss / weight, 'perplexity': math.exp(loss / weight)}

  def better(self, scores, best):
    return scores['loss'] < best['loss']


@pytest.mark.full
def test_trains_validates_and_scores(mini_data, tmp_path, monkeypatch):
  module = types.ModuleType('lra.objectives.masked_tokens')
  module.Objective = Objective
  monkeypatch.setitem(sys.modules, module.__name__, module)
  monkeypatch.setattr(
      objectives, 'names', lambda: ('classification', 'masked_tokens'))
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
