"""Tests the state sizes of records that have none."""

import types

from lra.board import states


def _state(pooling, state_size=None):
  config = {'seq_len': 24, 'encoder': {'width': 16, 'pooling': pooling},
            'model': {'name': 'transformer', 'num_heads': 2, 'qkv_width': 16}}
  return states.of_run(types.SimpleNamespace(
      state_size=state_size, config=config, task='text_mini'))


def test_attention_keeps_keys_and_values_of_tokens_and_cls():
  assert _state('mean') == 2 * 24 * 16
  assert _state('cls') == 2 * 25 * 16
  assert _state('cls', state_size=7) == 7
