"""What a config costs, measured on a toy run."""

import small
from lra.costs import loop
from lra.training import program


def test_measure_says_what_ran_and_how_long_a_step_took(mini_data):
  config = small.config('local', 'listops_mini')
  config.data_dir = str(mini_data)
  got = loop.measure(config, steps=2, rounds=2)
  expected = program.count_parameters(program.make(config).state_shape)
  assert {k: got[k] for k in expected} == expected
  assert (got['model'], got['task'], got['num_devices'], got['steps']) == (
      'local', 'listops_mini', 4, 2)
  assert got['loop_s_per_step'] > 0 and got['bare_s_per_step'] > 0
  assert got['overhead'] > -1 and got['peak_memory_bytes'] > 2**20
