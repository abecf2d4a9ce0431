"""Times attention layers in turns, for the page of studies.

  python -m tools studies better_attention
  python -m tools studies better_attention_words
  python -m tools studies center
  python -m tools studies transfer
  python -m tools studies int8 RUN RUN

Each writes `lra/results/studies/NAME.json`. In each round every arm makes a
step, so that other programs slow all of them alike.

`better_attention` counts and times the layers of Hosseini & Hosseini, "You Need
to Pay Better Attention" (arXiv 2403.01643). For L tokens of width D these have,
biases included:

| layer | parameters | multiplications | matmuls |
| :-- | :-- | :-- | :-- |
| standard | 4 (D^2 + D) | 4 L D^2 + 2 L^2 D | 6 |
| optimised | 3 (D^2 + D) | 3 L D^2 + 2 L^2 D | 5 |
| efficient | 2 (D^2 + D) | 2 L D^2 + 2 L^2 D | 4 |
| super | 2 (D^2 + D) + L^2 + L | 2 L D^2 + 3 L^2 D | 5 |

`better_attention_words`, `center` and `transfer` time training and evaluation
of the arms of the study with this name in `configs/runs/`.
"""

import argparse
import datetime
import functools
import json
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lra.core import files, machine, paths
from lra.many import runs as runs_lib
from lra.run import loader
from lra.share import quantised
from tools import tables
from tools.step import drawn_steps

# Model -> the layer's name in the paper.
LAYERS = {'transformer': 'standard', 'optimised': 'optimised',
          'efficient': 'efficient', 'super': 'super'}
# (L, D, H) -> the source of this size. The paper's L follow from its numbers of
# parameters of super attention, 2 (D^2 + D) + L^2 + L.
SIZES = {
    (32, 32, 4): 'the paper\'s model of IMDB',
    (64, 64, 4): 'the paper\'s model of MNIST',
    (144, 144, 4): 'the paper\'s model of CIFAR-100',
    (256, 32, 2): 'image_mini',
    (512, 64, 2): 'text_mini'}
# Layers in a chain. A single layer of this size takes less time than a call.
CHAIN = 50
SECONDS = 20  # per size
# Study -> the arm that the others are compared with.
TIMED = {'better_attention_words': 'standard, 4 heads', 'center': 'full',
         'transfer': 'all trained'}
ROUNDS = 20


def better_attention() -> list[dict]:
  """Returns a row of each layer at each size."""
  return [row for size in SIZES for row in _of_size(*size)]


def counts(model: str, length: int, width: int, heads: int) -> dict:
  """Counts parameters, multiplications and matmuls of a layer of one example.
  """
  module, variables, x, mask = _layer(model, length, width, heads)
  found = matmuls(jax.make_jaxpr(functools.partial(module.apply, train=False))(
      variables, x, mask).jaxpr)
  return {
      'parameters': sum(p.size for p in jax.tree.leaves(variables['params'])),
      'multiplications': sum(found), 'matmuls': len(found)}


def matmuls(jaxpr) -> list[int]:
  """Returns the multiplications of each matmul of a jaxpr without loops."""
  found = []
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      (contracted, _), _ = equation.params['dimension_numbers']
      left = equation.invars[0].aval.shape
      found.append(equation.outvars[0].aval.size * int(np.prod(
          [left[i] for i in contracted])))
    for inner in core.jaxprs_in_params(equation.params):
      found += matmuls(inner)
  return found


def _layer(model, length, width, heads):
  """Returns a layer with dense softmax, its variables, an input and a mask."""
  module = tables.mixer(model, width, heads, kernel='dense')
  x = jnp.asarray(np.random.default_rng(0).standard_normal(
      (1, length, width), np.float32))
  mask = jnp.ones((1, length), bool)
  variables = jax.jit(functools.partial(module.init, train=False))(
      jax.random.key(0), x, mask)
  return module, variables, x, mask


def _of_size(length, width, heads):
  calls = [_chain(*_layer(model, length, width, heads)) for model in LAYERS]
  times = np.array(quantised.interleaved(calls, SECONDS)) / CHAIN
  found = []
  for (model, name), own in zip(LAYERS.items(), times, strict=True):
    low, middle, high = quantised.quartiles(own)
    ratio = quantised.quartiles(own / times[0])
    found.append({
        'layer': f'{name}, L {length}, D {width}, H {heads}',
        'size of': SIZES[length, width, heads],
        **counts(model, length, width, heads),
        'single example (µs, median)': round(1e6 * middle, 2),
        'quartiles (µs)': f'{1e6 * low:.2f} to {1e6 * high:.2f}',
        'fastest (µs)': round(1e6 * own.min(), 2),
        'time / standard (median)': round(ratio[1], 3),
        'its quartiles': f'{ratio[0]:.3f} to {ratio[2]:.3f}',
        'rounds': len(own)})
  return found


def _chain(module, variables, x, mask):
  """Returns a call that applies a layer `CHAIN` times, each to its output."""
  chained = jax.jit(lambda variables, x: jax.lax.scan(
      lambda x, _: (module.apply(variables, x, mask, train=False), None), x,
      length=CHAIN)[0])
  return functools.partial(chained, variables, x)


def arms(name: str, rounds: int = ROUNDS) -> list[dict]:
  """Times a training step and an evaluation of each arm of a study.

  The ratio is the median over rounds, after one to warm up, of the time divided
  by that of the arm `TIMED` of the task in the same round.
  """
  runs = {(run.config.partition(':')[2], run.arm): run.flags
          for run in runs_lib.read(name)}
  rows, first = [], TIMED[name]
  for task in dict.fromkeys(task for task, _ in runs):
    found = {arm: flags for (of, arm), flags in runs.items() if of == task}
    made = [drawn_steps(loader.made_by([*flags, '--config.dtype=float32']))
            for flags in found.values()]
    times = np.array(quantised.interleaved(
        [call for one in made for call in one[:2]], 0, rounds))
    trained, scored = times[::2], times[1::2]
    base = trained[[*found].index(first)]
    rows += [{
        'arm': arm, 'task': task,
        'seconds per step': round(float(np.median(own)), 4),
        f'time / {first}': round(float(np.median(own / base)), 3),
        'seconds per evaluated batch': round(float(np.median(alone)), 4),
        'temporaries (MiB)': round(size / 2**20, 1), 'mixer parameters': count}
             for arm, own, alone, (*_, size, count) in zip(
                 found, trained, scored, made, strict=True)]
  return rows


def int8(folders: Sequence[str]) -> list[dict]:
  """Measures runs and their int8 versions; returns a row of each."""
  return [int8_row(quantised.measure(folder)) for folder in folders]


def int8_row(pair: quantised.Pair) -> dict:
  """Returns the row of a table: heading -> value."""
  dtype = pair.trained.program.dtype
  float_, int8_ = (sample.accuracies[0] for sample in pair.samples)
  return {
      'model': pair.trained.config.model.name,
      'task': pair.trained.config.task,
      f'accuracy {dtype} %': round(100 * float_, 2),
      'accuracy int8 %': round(100 * int8_, 2),
      'difference (points)': round(100 * (int8_ - float_), 2),
      f'right only in {dtype}': pair.only[0],
      'right only in int8': pair.only[1],
      'p (McNemar)': round(pair.p, 4),
      f'parameters {dtype} (bytes)': pair.bytes[0],
      'parameters int8 (bytes)': pair.bytes[1],
      f'{dtype} (ms per example)': round(1e3 * pair.seconds[0], 4),
      'int8 (ms per example)': round(1e3 * pair.seconds[1], 4),
      'time int8 / ' + dtype: round(pair.ratios[1], 3),
      'time, quartiles': ' to '.join(f'{pair.ratios[i]:.3f}' for i in (0, 2)),
      'batch size': pair.batch_size}


STUDIES = {'better_attention': better_attention, 'int8': int8, **{
    name: functools.partial(arms, name) for name in TIMED}}


def write(out: pathlib.Path, name: str, rows: list[dict], flag: str) -> str:
  """Writes `OUT/studies/NAME.json`, with the flag that measured it; returns its
  text.
  """
  state = machine.git_state()
  changed = ' (modified)' * bool(state['git_dirty'])
  text = json.dumps({
      'rows': rows,
      'environment': {
          'device': machine.device_name(), 'jax': jax.__version__,
          'date': datetime.datetime.now(datetime.UTC).date().isoformat()},
      'commit': state['git_commit'] and state['git_commit'] + changed,
      'command': ' '.join(['python -m tools', flag])}, indent=1) + '\n'
  files.write_all({out / 'studies' / f'{name}.json': text.encode()})
  return text


def main(argv: Sequence[str]) -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('name', choices=STUDIES)
  parser.add_argument('runs', nargs='*')
  parser.add_argument('--out', type=pathlib.Path, default=paths.results())
  args = parser.parse_args(argv)
  rows = STUDIES[args.name](*([args.runs] if args.name == 'int8' else []))
  print(write(args.out, args.name, rows,
                       ' '.join(['studies', args.name, *args.runs])))
