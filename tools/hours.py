"""Estimates hours and memory of full tasks on hardware that is not here.

`python -m tools --full_tasks` writes the table. It traces the training step
of each task and model for one example and counts the operations of its matmuls.
It also counts the bytes of the arrays that the backward pass needs. Nothing is
compiled or run.
"""

import functools
import json
import math
import sys
from typing import NamedTuple

import jax

from lra.board.markdown import table
from lra.core import paths
from lra.core.formats import gib, quantity
from lra.data_prep import aan, listops, pathfinder, text
from lra.run import program, step
from lra.run.experiment import resolve
from tools import config_of

TASKS = ('listops', 'text', 'retrieval', 'image', 'pathfinder', 'pathx')
MODELS = ('transformer', 'lightning', 'longformer', 's5')


class Device(NamedTuple):
  """Published peaks of a device: FLOP/s and bytes/s."""
  flops: float
  bandwidth: float


# From the data sheets, dense. The T4 has no bfloat16, so its float32 counts.
# The CPU makes 32 float32 operations per cycle, core and 2.45 GHz.
DEVICES = {
    'CPU': Device(5.0e12, 204.8e9), 'T4': Device(8.1e12, 320e9),
    'A100': Device(312e12, 2039e9), 'H100': Device(989e12, 3350e9),
    'H200': Device(989e12, 4800e9)}
# Examples of validation and test. Those of Text and Image are not in the code:
# they are the sizes of IMDB and CIFAR-10.
EVALUATED = {
    'listops': listops.VARIANTS['lra'].sizes[1:],
    'text': (text.VAL_REVIEWS, 25_000),
    'retrieval': tuple(aan.ROWS.values())[1:], 'image': (5000, 10_000),
    'pathfinder': pathfinder.Variant.sizes[1:],
    'pathx': pathfinder.Variant.sizes[1:]}
# Bytes of a float32 parameter with its gradient and both moments of AdamW; and
# how often a step reads or writes one of these four arrays at least.
_STATE, _STATE_PASSES = 16, 7


class Cost(NamedTuple):
  """The costs of a run, of its own protocol.

  Attributes:
    flops: floating point operations of all matmuls of the run.
    moved: bytes that its training steps move at least.
    state: bytes of parameters, gradients and optimizer.
    saved: bytes that one example keeps for the backward pass, in bfloat16.
    batch: examples of a step.
  """
  flops: float
  moved: float
  state: int
  saved: int
  batch: int

  def hours(self, device: Device) -> float:
    """Returns a lower bound of the hours of the run (its roofline)."""
    return max(self.flops / device.flops,
               self.moved / device.bandwidth) / 3600


def measure(model: str, task: str, protocol: str = '') -> Cost:
  """Traces the steps of a run; returns its costs.

  Args:
    model, task: names of a model and of one of `TASKS`.
    protocol: a protocol of the task; by default the first one.
  """
  config = config_of(model, task + (protocol and f',protocol={protocol}'))
  t = config.train
  batch_size, steps = t.batch_size, t.steps
  validations = -(-steps // t.eval_every)
  config.train.batch_size = config.train.microbatch_size = 1
  made = program.make(resolve(config), jax.devices()[:1], dtype='bfloat16')
  state = made.state_shape
  shaped = lambda *lead: {
      name: jax.ShapeDtypeStruct(*kind) for name, kind
      in made.shapes(*lead, micro=len(lead) == 2).items()}
  run = functools.partial(step.train_step, made.model, made.objective)
  trained = flops(jax.make_jaxpr(run)(
      state, shaped(1, 1), made.put_given()).jaxpr)
  evaluated = flops(jax.make_jaxpr(functools.partial(
      step.eval_step, made.model, made.objective))(
          state.params, state.constants, shaped(1)).jaxpr)
  val, test = EVALUATED[task]
  state_bytes = _STATE * sum(program.sizes(state.params).values())
  saved = _saved(made, shaped(1))
  return Cost(
      steps * batch_size * trained + (validations * val + test) * evaluated,
      steps * (2 * batch_size * saved + _STATE_PASSES * state_bytes / 4),
      state_bytes, saved, batch_size)


def _saved(made, batch):
  """Returns the bytes that the backward pass of a batch needs, without dropout.

  Parameters do not count.
  """
  def pulled(params, constants, batch):
    def loss(params):
      outputs = made.model.apply(
          {'params': params, **constants}, made.objective.inputs(batch),
          train=False)
      return made.objective.loss(outputs, batch)['loss']
    return jax.vjp(loss, params)[1]

  state = made.state_shape
  kept = jax.tree.leaves(jax.eval_shape(
      pulled, state.params, state.constants, batch))
  given = sum(program.sizes(state.params).values()) * 4
  return max(0, sum(math.prod(x.shape) * x.dtype.itemsize
                    for x in kept) - given)


def flops(jaxpr) -> int:
  """Counts the operations of all matmuls of a jaxpr, in loops each time.

  A matmul of M x K and K x N takes 2 M K N. A loop of unknown length counts
  once, and a branch counts as the cheapest one.
  """
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      (contracted, _), _ = equation.params['dimension_numbers']
      left = equation.invars[0].aval.shape
      total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(
          left[i] for i in contracted)
    inner = [flops(j) for j in map(inner_jaxpr, jax.tree.leaves(
        list(equation.params.values()),
        is_leaf=lambda x: inner_jaxpr(x) is not None)) if j is not None]
    if equation.primitive.name == 'cond':
      inner = [min(inner)]
    total += equation.params.get('length', 1) * sum(inner) if (
        equation.primitive.name == 'scan') else sum(inner)
  return total


def inner_jaxpr(value):
  """Returns the jaxpr that a parameter of an equation holds, or None."""
  value = getattr(value, 'jaxpr', value)
  return value if hasattr(value, 'eqns') else None


def tables() -> list[str]:
  """Returns lines of Markdown: each task and model on each device."""
  rows = []
  for task in TASKS:
    for model in MODELS:
      print(f'{task}: {model}', file=sys.stderr, flush=True)
      cost = measure(model, task)
      rows.append([
          task, model, config_of(model, task).protocol,
          *(quantity((cost.state + n * cost.saved) / 2**30)
            for n in (0, 1, cost.batch)),
          *(quantity(cost.hours(device)) for device in DEVICES.values())])
  heads = ['GiB of state', 'with one example', 'with a batch', *(
      f'{name}, h' for name in DEVICES)]
  return [*heading(), table(
      ['task', 'model', 'protocol', *heads], rows, right=heads), '',
          *_measured()]


def heading() -> list[str]:
  """Returns the lines above the table, which describe it."""
  peaks = '; '.join(
      f'{name} {quantity(d.flops / 1e12)} TFLOP/s, '
      f'{d.bandwidth / 1e9:,.0f} GB/s' for name, d in DEVICES.items())
  return [
      '# Hours and memory of full tasks', '',
      'Computed, not measured: a lower bound (roofline) of the hours of a '
      'whole run of the default protocol, with every sequence at its full '
      'length. It is the larger of two times. One is that of the matmuls, in '
      'training, validation and test, at the published peak. The other is that '
      'of the bytes of the training steps at the published bandwidth: each '
      'array that the backward pass needs is written and read once, and the '
      'optimizer reads and writes its state. Real runs take longer, and small '
      'models many times as long, because they launch many kernels. Other '
      'operations do not count, so the bound of a recurrence (`s5`) is further '
      'from its real hours.', '',
      'Memory is the state (parameters, gradients, moments) and the arrays '
      'that the backward pass needs, in bfloat16, for one example and for a '
      'whole batch. A run chooses microbatches between the two that fit.', '',
      f'Peaks: {peaks}. The CPU is an AMD EPYC 7763 with 64 cores. Counted in '
      'the traced program, without compilation. Written by '
      '`python -m tools --full_tasks`.', '']


def _measured():
  """Returns lines of Markdown: what records of these tasks took."""
  rows = []
  for task in TASKS:
    for path in sorted((paths.PACKAGED / 'runs' / task).glob('*.json')):
      run = json.loads(path.read_text('utf-8'))
      if run['seed'] == 0 and run['model'] in (*MODELS, 'linear_transformer'):
        hours = (run['train_seconds'] + run['eval_seconds']) / 3600
        device = DEVICES.get(run['device'].split()[-1])
        least = device and measure(
            run['model'], task, run['protocol']).hours(device)
        rows.append([task, run['model'], run['protocol'], run['device'],
                     str(run.get('runs_at_once', 1)), quantity(hours),
                     quantity(least), gib(run['peak_memory_bytes'])])
  heads = ['runs at once', 'hours', 'bound of one run, h', 'GiB']
  if not rows:
    return []
  return ['Measured, from the records of this repository, seed 0:', '', table(
      ['task', 'model', 'protocol', 'device', *heads], rows, right=heads)]
