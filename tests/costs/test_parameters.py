"""Parameters counted from one block are those of the whole model."""

import importlib

import pytest

import small
from lra.costs import parameters
from lra.training import program


@pytest.mark.parametrize('model, task', [
    ('super', 'retrieval'), ('generative_rks', 'text')])
def test_equals_the_count_of_the_whole_model(model, task):
  config = importlib.import_module(f'configs.{model}').get_config(task)
  whole = program.count_parameters(small.make(config).state_shape)
  assert parameters.parameters(model, task) == whole['num_params']


def test_retrieval_transformer_by_hand():
  # Ids 257, positions 4000, CLS; four blocks of 4 D^2 + 4 D attention,
  # 2 D F + D + F MLP and two norms; norm; head of F, F / 2 and 2 outputs.
  D, F = 128, 512
  block = 4 * D**2 + 4 * D + 2 * D * F + D + F + 4 * D
  head = (2 * D + 1) * F + (F + 1) * F // 2 + (F // 2 + 1) * 2
  assert parameters.parameters('transformer', 'retrieval') == (
      (257 + 4000 + 1) * D + 4 * block + 2 * D + head)
