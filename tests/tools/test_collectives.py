"""Compares the bytes that eight devices exchange in a step with formulas."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from tests.helpers import small
from tests.helpers.paths import ROOT
from tools import collectives, hlo

LAYERS, HEADS, WIDTH, LENGTH, MICRO, COUNT = 2, 2, 32, 64, 4, 3
STATE = 4 * MICRO * HEADS * (WIDTH // HEADS) ** 2  # bytes in one layer
ACTIVATION = 4 * MICRO * LENGTH * WIDTH  # bytes of a layer's output
MESHES = {'data': ('simpletron', {'data': -1}),
          'fsdp': ('simpletron', {'data': 1, 'fsdp': -1}),
          'sequence': ('simpletron', {'data': 1, 'sequence': -1}),
          'causal': ('lightning', {'data': 1, 'sequence': -1})}
# Runs in a separate process, where JAX splits the CPU into eight devices.
SCRIPT = """
import json, sys
import jax
jax.config.update('jax_num_cpu_devices', 8)
from tests.tools import test_collectives as test
from tools import collectives
told = {name: collectives.collective_bytes(test.config(*case), 8)
        for name, case in test.MESHES.items()}
print(json.dumps({name: [[*key, times] for key, times in found.items()]
                  for name, found in told.items()}))
"""


def config(model, sizes):
  c = small.config(model, 'listops', batch_size=MICRO * COUNT,
                   microbatch_size=MICRO)
  c.unlock()
  c.seq_len, c.encoder.num_layers = LENGTH, LAYERS
  c.encoder.width = c.encoder.mlp_width = c.model.qkv_width = WIDTH
  c.encoder.pooling = 'mean'
  c.mesh.update(sizes)
  return c


@pytest.fixture(scope='module')
def told():
  made = subprocess.run(
      [sys.executable, '-c', SCRIPT], text=True, capture_output=True,
      env={**os.environ, 'PYTHONPATH': str(ROOT)})
  assert made.returncode == 0, made.stderr
  return {name: [tuple(row) for row in rows]
          for name, rows in json.loads(made.stdout).items()}


def _entries(model='simpletron'):
  p = small.make(config(model, {}))
  return sum(x.size for x in jax.tree.leaves(p.state_shape.params))


@pytest.mark.full
def test_data_reduces_the_gradients_once_and_nothing_else(told):
  sums = 3  # loss, correct answers, weight
  assert told['data'] == [('all-reduce', 4 * (_entries() + sums), 8, 1)]


@pytest.mark.full
def test_fsdp_gathers_parameters_and_no_activations(told):
  gathered = sum(size for kind, size, _, times in told['fsdp']
                 if kind == 'all-gather' for _ in range(times)
                 if size >= 4 * 1024)
  # Arrays of at least 1,024 entries are gathered, some for every microbatch.
  assert 4 * _entries() / 2 < gathered < 3 * 4 * _entries()
  whole = MICRO * 8 * LENGTH * WIDTH * 4
  assert all(size < whole / 2 for _, size, _, _ in told['fsdp'])


@pytest.mark.full
def test_sequence_sums_one_state_a_layer_and_pass(told):
  rows = {(kind, size): times for kind, size, _, times in told['sequence']}
  assert rows['all-reduce', STATE] == 2 * LAYERS * COUNT
  assert not any(kind == 'collective-permute' for kind, _ in rows)


@pytest.mark.full
def test_sequence_hands_a_causal_state_on_in_log_steps(told):
  rows = {(kind, size): times for kind, size, _, times in told['causal']}
  assert rows['collective-permute', STATE] == 2 * LAYERS * COUNT * (1 + 3)


@pytest.mark.full
@pytest.mark.parametrize('name', ['sequence', 'causal'])
def test_no_device_is_told_whole_sequences(told, name):
  gathers = [(size, times) for kind, size, _, times in told[name]
             if kind in ('all-gather', 'all-to-all')]
  # Only the gradient of the position embeddings is gathered, once.
  assert gathers == [(4 * LENGTH * WIDTH, 1)] and ACTIVATION > gathers[0][0]


def test_collectives_of_a_program_are_counted():
  text = """
add.1 (a: f32[], b: f32[]) -> f32[] {
  ROOT c = f32[] add(a, b)
}

body.2 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  r = f32[4] all-reduce(x), replica_groups=[2,4]<=[8], to_apply=%add.1
  ROOT t = (s32[], f32[4]) tuple(i, r)
}

ENTRY main.3 (x: f32[4]) -> f32[4] {
  c = f32[4] conditional(k, s, s), true_computation=%body.2, \
false_computation=%add.1
  w = (s32[], f32[4]) while(s), condition=%cond.9, body=%body.2, \
backend_config={"known_trip_count":{"n":"5"}}
  g = f32[8] all-gather(x), replica_groups=mesh['a'=2,'b'=4] {'a'}
  n = f32[4] all-reduce(x), replica_groups={{0},{1}}, to_apply=%add.1
  p = f32[2] collective-permute(x), source_target_pairs={{0,1},{1,2}}
  ROOT o = f32[4] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=%add.1
}
"""
  assert hlo.collectives(text) == {
      ('all-reduce', 16, 4): 6, ('all-gather', 32, 2): 1,
      ('collective-permute', 8, 3): 1, ('all-reduce', 16, 2): 1}


def test_the_branch_that_tells_most_counts():
  branches = 3
  mesh = jax.make_mesh((4,), ('x',), axis_types=(AxisType.Auto,))

  def told(times):
    def branch(x):
      for _ in range(times):
        x = jax.lax.psum(jnp.sin(x), 'x')
      return x
    return branch

  step = jax.shard_map(
      lambda i, x: jax.lax.switch(i, list(map(told, range(branches))), x),
      mesh=mesh, in_specs=(P(), P('x')), out_specs=P('x'), check_vma=False)
  program = jax.jit(step).lower(0, jnp.zeros(8)).compile()
  assert hlo.collectives(program.as_text()) == {
      ('all-reduce', 8, 4): branches - 1}


def test_a_ring_sends_what_a_ring_sends():
  step = collectives.Step(
      {}, {('all-reduce', 1000, 5): 2, ('all-gather', 1000, 4): 1,
           ('reduce-scatter', 100, 4): 1, ('collective-permute', 7, 3): 1}, 0)
  # All-reduce of 5 devices: 8 shares of 1/5. All-gather of 4: 3 shares of 1/4.
  assert step.bytes_sent == 2 * 8 * 200 + 3 * 250 + 3 * 100 + 7
