"""Tests the counts from which hours and memory of full tasks are estimated."""

import jax
import jax.numpy as jnp
import pytest

from lra.core import paths, tasks
from tools import hours
from tools.hours import Cost, Device


def _counted(function, *shapes):
  return hours.flops(jax.make_jaxpr(function)(
      *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).jaxpr)


def test_matmuls_in_loops_and_branches_count_as_often_as_they_run():
  """A product of 3 x 4 and 4 x 5 takes 2 * 3 * 4 * 5 = 120 operations."""
  product = lambda a, b: a @ b
  assert _counted(product, (3, 4), (4, 5)) == 120
  assert _counted(jax.vmap(product), (7, 3, 4), (7, 4, 5)) == 7 * 120

  def looped(a, b):
    step = lambda carry, x: (carry, jax.jit(product)(x, b))
    return jax.lax.scan(step, 0, a)[1]

  assert _counted(looped, (6, 3, 4), (4, 5)) == 6 * 120
  twice = lambda a, b: jax.lax.map(lambda _: looped(a, b), jnp.arange(2))
  assert _counted(twice, (6, 3, 4), (4, 5)) == 12 * 120
  # A gradient has one product for each operand, besides the forward pass.
  assert _counted(jax.grad(lambda a, b: jnp.sum(jnp.sin(a @ b)), (0, 1)),
                  (3, 4), (4, 5)) == 3 * 120
  either = lambda a, b: jax.lax.cond(
      a[0, 0] > 0, lambda: a @ b + a @ b, lambda: a @ b)
  assert _counted(either, (3, 4), (4, 5)) == 120


def test_the_bound_is_the_slower_of_matmuls_and_memory():
  cost = Cost(flops=7.2e15, moved=3.6e14, state=0, saved=0, batch=1)
  assert cost.hours(Device(1e12, 1e12)) == pytest.approx(2)
  assert cost.hours(Device(1e15, 1e10)) == pytest.approx(10)


@pytest.mark.full
def test_a_step_of_listops_has_the_operations_of_its_equations():
  """The Transformer of six blocks of width 512 on 2,000 tokens and a CLS.

  A block has 12 D^2 weights, each used twice per token, and attention of
  4 L^2 D. A backward pass takes twice as much, and ours computes logits again.
  """
  cost = hours.measure('transformer', 'listops')
  length, width = 2001, 512
  forward = 6 * (24 * length * width**2 + 4 * length**2 * width)
  again = 6 * 2 * length**2 * width
  examples = 75 * 2000 + 2000
  expected = 15_000 * 32 * (3 * forward + again) + examples * forward
  assert cost.flops == pytest.approx(expected, rel=0.03)
  # Parameters, counted in lra/results/parameters.csv, with three more copies.
  assert cost.state == pytest.approx(16 * 21e6, rel=0.03)
  assert 2 * 2000 * 512 * 6 < cost.saved < 2**30


def test_the_committed_table_is_that_of_the_code():
  text = (paths.PACKAGED / 'hours.md').read_text('utf-8')
  assert text.startswith('\n'.join(hours.heading()) + '\n| ')
  for task in hours.TASKS:
    for model in hours.MODELS:
      assert f'\n| {task} | {model} | ' in text


def test_each_full_task_of_long_range_arena_has_its_sizes():
  assert set(hours.EVALUATED) == set(hours.TASKS) <= set(tasks.TASKS)
