"""Makes tables of the memory and time of every model.

`python -m tools tables memory` (or `speed`) writes `lra/results/memory.md`.
"""

import functools
import importlib
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lra.board import catalogue
from lra.board.markdown import code, table
from lra.core import files, machine, paths
from lra.core.errors import UserError
from lra.core.formats import NONE, quantity
from lra.run.experiment import make_mixer
from lra.run.program import timed
from tools.step import drawn_steps

LENGTHS = (4096, 8192)
WIDTH, HEADS = 128, 4
SLOW_SECONDS = 30  # slower steps are timed once
# Exponent of L in a model's memory -> the factor by which its temporaries may
# grow when L doubles; with L^2 there is no limit.
LIMITS = {1: 2.3, 1.5: 3.1, 2: None}


def main(argv: Sequence[str]) -> None:
  out = paths.results()
  if argv == ['memory']:
    lines = memory()
  elif argv == ['speed']:
    measured = measure_speed()
    files.write_json(out / 'speed.json', measured)
    lines = speed_lines(measured)
  else:
    raise UserError('tables needs one of memory, speed.')
  print(write(out / f'{argv[0]}.md', lines))


def limit(entry: catalogue.Entry) -> float | None:
  """Returns how much temporaries may grow when L doubles; None: any."""
  return LIMITS[entry.growth['memory']]


def mixer(name: str, width: int = WIDTH, heads: int = HEADS, **options):
  """Makes the mixer of `configs/<name>.py:text` at a width, in float32."""
  config = _text_config(name, width, heads)
  config.model.update(options)
  return make_mixer(config.model)(dtype=jnp.float32)


def _text_config(name, width, heads):
  config = importlib.import_module(f'lra.configs.{name}').get_config('text')
  for field, value in (('num_heads', heads), ('qkv_width', width)):
    if field in config.model:
      config.model[field] = value
  return config


def compile_gradient(module, length: int, width: int = WIDTH):
  """Compiles a mixer's forward and backward pass, with B = 1."""
  x = jax.ShapeDtypeStruct((1, length, width), jnp.float32)
  mask = jax.ShapeDtypeStruct((1, length), bool)
  variables = dict(jax.eval_shape(
      functools.partial(module.init, train=False), jax.random.key(0), x, mask))
  params = variables.pop('params', {})

  def loss(params, rest, x, mask):
    y = module.apply({'params': params, **rest}, x, mask, train=True,
                     rngs={'dropout': jax.random.key(0)})
    return jnp.sum(jnp.square(y))

  return jax.jit(jax.grad(loss, (0, 2))).lower(
      params, variables, x, mask).compile()


def temporary_bytes(compiled) -> int:
  """Returns the temporary memory of a compiled program, in bytes."""
  return compiled.memory_analysis().temp_size_in_bytes


def write(path: pathlib.Path, lines: list[str]) -> str:
  """Writes lines as a file; returns its text."""
  text = '\n'.join(lines) + '\n'
  files.write_all({path: text.encode()})
  return text


def memory() -> list[str]:
  """Returns lines of Markdown: temporaries of every model at both `LENGTHS`."""
  rows = []
  for entry in catalogue.read():
    _say(entry.name)
    half, whole = (
        temporary_bytes(compile_gradient(mixer(entry.name), n))
        for n in LENGTHS)
    most = limit(entry)
    rows.append([
        entry.name, *(f'{n / 2**20:,.1f}' for n in (half, whole)),
        f'{whole / half:.2f}', NONE if most is None else f'{most:.1f}'])
  heads = [*(f'L = {n:,}' for n in LENGTHS), 'ratio', 'limit']
  device = f'{machine.device_name()}, JAX {jax.__version__}'
  return [
      '# Memory of the models', '',
      f'Temporary MiB of one mixer, forward and backward, compiled for '
      f'{device}; B 1, width {WIDTH}, {HEADS} heads, float32, the settings '
      'of `configs/<model>.py:text`. The limit of the ratio follows from the '
      'model\'s cost in L; there is none if memory is quadratic by '
      'definition. Memory may shrink when L doubles: with more than 2^23 '
      'logits in all heads (`MANY_LOGITS` of `lra/nn/partials.py`), bigbird, '
      'reformer, compressive and others compute one head after another. '
      'Written by `python -m tools tables memory`.', '',
      table(['model', *heads], rows, right=heads)]


def measure_speed(width: int = 256, rounds: int = 3,
                  shapes: Sequence[tuple[int, int]] = ((4, 4000),)
                  ) -> dict[str, Any]:
  """Times a training step of every model, in turns, for each (batch, L) of
  `shapes`.

  The MLP is four times as wide. In a round all models take turns, so that a
  slow minute of the machine affects all of them. Returns the JSON for
  `board.inputs.speeds`: for each model and shape, the median seconds and the
  temporary bytes of the compiled step.
  """
  columns = [_column(*shape, width, rounds) for shape in shapes]
  return {
      'device': machine.device_name(), 'jax': jax.__version__, 'width': width,
      'rounds': rounds, 'shapes': [list(shape) for shape in shapes],
      'models': {name: {'seconds': [column[name][0] for column in columns],
                        'bytes': [column[name][1] for column in columns]}
                 for name in columns[0]}}


def speed_lines(measured: dict[str, Any]) -> list[str]:
  """Returns the result of `measure_speed` as Markdown, the fastest first."""
  found = measured['models']
  rows = [[entry.name, code(entry.cost), *(
      text for s, base, size in zip(
          found[entry.name]['seconds'], found['transformer']['seconds'],
          found[entry.name]['bytes'], strict=True)
      for text in (quantity(s), f'{s / base:.2f}', f'{size / 2**20:,.0f}'))]
          for entry in catalogue.read()]
  rows.sort(key=lambda row: found[row[0]]['seconds'][-1])
  heads = [text for batch, length in measured['shapes'] for text in (
      f'{batch} x {length:,}', 'ratio', 'MiB')]
  return [
      '# Speed of the models', '',
      f'Seconds of one training step of two blocks on {measured["device"]}, '
      f'JAX {measured["jax"]}, their ratio to the Transformer\'s, and MiB that '
      'the step needs besides its arguments. Compare the ratios, not the '
      f'seconds. Width {measured["width"]}, {HEADS} heads, MLP '
      f'{4 * measured["width"]}, float32, no padding, the settings of '
      f'`configs/<model>.py:text`; median of {measured["rounds"]} rounds over '
      f'all models. A step slower than {SLOW_SECONDS} s is timed once. Every '
      'row includes projections and MLP. Where cost is linear in L, the '
      'number M of features, landmarks or keys per query decides from which '
      'L on a model is faster. Written by `python -m tools tables speed`.',
      '', table(['model', 'cost', *heads], rows, right=heads)]


def _column(batch, length, width, rounds):
  """Returns model -> (seconds, temporary bytes) of a step."""
  steps, sizes, seconds = {}, {}, {}
  for entry in catalogue.read():
    _say(f'L {length}: compiling {entry.name}')
    steps[entry.name], sizes[entry.name] = _training_step(
        entry.name, batch, length, width)
    first = steps[entry.name]()  # warms up
    if first > SLOW_SECONDS:
      seconds[entry.name] = [first]
      _say(f'{entry.name}: {first:.0f} s, not repeated')
  repeated = [name for name in steps if name not in seconds]
  for number in range(rounds):
    for name in repeated:
      seconds.setdefault(name, []).append(steps[name]())
      _say(
          f'L {length}, round {number + 1}: {name} {seconds[name][-1]:.2f} s')
  return {name: (statistics.median(x), sizes[name])
          for name, x in seconds.items()}


def _training_step(name, batch, length, width):
  """Returns (a function, bytes); the function makes a step; returns seconds.
  """
  config = _text_config(name, width, HEADS)
  config.dtype = 'float32'
  config.seq_len = length
  config.encoder.update(
      {'num_layers': 2, 'width': width, 'mlp_width': 4 * width})
  config.train.batch_size = config.train.microbatch_size = batch
  step, _, size, _ = drawn_steps(config)
  return lambda: timed(step)[1], size


def _say(message):
  print(message, file=sys.stderr, flush=True)
