"""Counts and times the attention layers of the first paper, in turns.

The paper is Hosseini & Hosseini, "You Need to Pay Better Attention", arXiv
2403.01643. For L tokens of width D its layers have, biases included:

| layer | parameters | multiplications | matmuls |
| :-- | :-- | :-- | :-- |
| standard | 4 (D^2 + D) | 4 L D^2 + 2 L^2 D | 6 |
| optimised | 3 (D^2 + D) | 3 L D^2 + 2 L^2 D | 5 |
| efficient | 2 (D^2 + D) | 2 L D^2 + 2 L^2 D | 4 |
| super | 2 (D^2 + D) + L^2 + L | 2 L D^2 + 3 L^2 D | 5 |

The numbers of parameters are the paper's formulas. Here those and the other
columns are counted in the layers themselves.

Efficient and super attention have one head, so their softmax has L^2 weights
instead of H L^2. Super attention has fewer parameters than standard attention
only if L^2 + L < 2 (D^2 + D), so about L < 1.4 D.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lra.share import quantised
from tools import hours, tables

# Model -> the layer's name in the paper.
LAYERS = {'transformer': 'standard', 'optimised': 'optimised',
          'efficient': 'efficient', 'super': 'super'}
# (L, D, H) -> where the paper or this harness has it. L = D = 64 is the paper's
# example. The IMDB size is that of a reimplementation for which the authors
# helped (github.com/NMesaC/pay-better-attention-pytorch-keras).
SIZES = {
    (32, 32, 4): 'IMDB in words, as reimplemented',
    (64, 64, 4): 'the paper\'s example',
    (256, 32, 2): 'image_mini',
    (512, 64, 2): 'text_mini'}
# Layers in a chain. A single layer of this size takes less time than a call.
CHAIN = 50
SECONDS = 20  # per size


def rows(seconds: float = SECONDS) -> list[dict]:
  """Returns a row of each layer at each size, times from rounds in turns."""
  return [row for size in SIZES for row in _of_size(*size, seconds)]


def counts(model: str, length: int, width: int, heads: int) -> dict:
  """Counts parameters, multiplications and matmuls of a layer, B = 1.

  Args:
    model: one of `LAYERS`.
    length, width, heads: L, D and H.
  """
  module, variables, x, mask = _layer(model, length, width, heads)
  jaxpr = jax.make_jaxpr(functools.partial(module.apply, train=False))(
      variables, x, mask).jaxpr
  return {
      'parameters': sum(p.size for p in jax.tree.leaves(variables['params'])),
      'multiplications': hours.flops(jaxpr) // 2,
      'matmuls': _matmuls(jaxpr)}


def _matmuls(jaxpr):
  return sum(equation.primitive.name == 'dot_general' or sum(
      _matmuls(inner) for inner in map(hours.inner_jaxpr, jax.tree.leaves(
          list(equation.params.values()),
          is_leaf=lambda x: hours.inner_jaxpr(x) is not None))
      if inner is not None) for equation in jaxpr.eqns)


def _layer(model, length, width, heads):
  """Returns a layer with dense softmax, its variables, an input and a mask."""
  module = tables.mixer(model, width, heads, kernel='dense')
  x = jnp.asarray(np.random.default_rng(0).standard_normal(
      (1, length, width), np.float32))
  mask = jnp.ones((1, length), bool)
  variables = jax.jit(functools.partial(module.init, train=False))(
      jax.random.key(0), x, mask)
  return module, variables, x, mask


def _of_size(length, width, heads, seconds):
  calls = [_chain(*_layer(model, length, width, heads)) for model in LAYERS]
  times = np.array(quantised.interleaved(calls, seconds)) / CHAIN
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
