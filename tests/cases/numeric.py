"""Shows the cases of numbers before and after: one line a case.

Run: PYTHONPATH=CLONE python tests/cases/numeric.py CLONE [cases]
"""

import os
import sys

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
sys.path[:0] = [sys.argv[1]]

import jax
import jax.numpy as jnp
import numpy as np

from lra import models

AXES = (-1, 1)


def _ones(width):
  return {'scale': jnp.ones(width), 'bias': jnp.zeros(width)}


def norms():
  """The deviation of normalised tokens with a large mean, which is 1."""
  from lra.nn import norm
  for mean in (2e3, 1e4):
    x = (mean + np.random.default_rng(0).normal(size=(1, 64, 64))).astype('f')
    mask = jnp.ones((1, 64), bool)
    y = norm.LayerNorm().apply({'params': _ones(64)}, x)
    yield f'LayerNorm, mean {mean:g}: deviation {np.std(y):.3f}'
    stats = {'mean': jnp.zeros(64), 'var': jnp.ones(64)}
    y, _ = norm.BatchNorm().apply(
        {'params': _ones(64), 'batch_stats': stats}, x, mask, train=True,
        mutable=['batch_stats'])
    yield f'BatchNorm, mean {mean:g}: deviation {np.std(y):.3f}'
  x = (100 + 0.001 * np.arange(16)).astype('f')[None, None]
  y = norm.LayerNorm().apply({'params': _ones(16)}, x)
  yield f'LayerNorm, 100 + 0.001 i: deviation {np.std(y):.3f}'
  import flax.linen as nn

  from lra.models import star_transformer
  x = (1e4 + np.random.default_rng(0).normal(size=(1, 8, 64))).astype('f')

  class Star(star_transformer.Mixer):

    @nn.compact
    def __call__(self, x):
      return self._update(x.reshape(1, 8, 2, 32), x, 'ring')

  y = Star(num_heads=2, qkv_width=64).apply({'params': {
      'ring_out': {'kernel': jnp.eye(64).reshape(2, 32, 64),
                   'bias': jnp.zeros(64)}, 'ring_norm': _ones(64)}}, x)
  yield f"star_transformer's norm, mean 10000: deviation {np.std(y):.3f}"
  y = norm.standardise(jnp.asarray(x), 1e-6)
  yield f'heads (standardise), mean 10000: deviation {np.std(y):.3f}'


def _delta(name, dtype, length, logit=20, seed=0, **options):
  mixer = models.mixer(name)(
      num_heads=2, direction='causal', dtype=dtype, conv_width=0, **options)
  x = np.random.default_rng(seed).normal(size=(1, 1, 32)).astype('f')
  x, mask = np.repeat(x, length, 1), np.ones((1, length), bool)
  params = jax.jit(lambda: mixer.init(
      jax.random.key(seed), x[:, :4], mask[:, :4], train=False))()['params']
  params = jax.tree.map(jnp.asarray, params)
  beta = np.sign(x[0, 0])
  params['beta']['kernel'] = jnp.asarray(
      logit / np.abs(beta @ x[0, 0]) * np.broadcast_to(
          beta[:, None, None], params['beta']['kernel'].shape))
  if 'log_rate' in params:
    params['log_rate'] = params['log_rate'] - 40
  y = jax.jit(lambda p, x: mixer.apply({'params': p}, x, mask, train=False))(
      params, x)
  y = np.asarray(y, np.float32)
  return f'largest output {np.abs(y).max():.3g}'


def deltas():
  """Delta rules with negative eigenvalues after 16,384 equal tokens."""
  for name in ('deltanet', 'gated_deltanet', 'deltaproduct', 'kda'):
    for dtype, seeds in (('bfloat16', (0, 1)), ('float32', (0,))):
      for seed in seeds:
        text = _delta(name, jnp.dtype(dtype), 16_384, seed=seed,
                      negative_eigenvalues=True)
        yield f'{name}, {dtype}, beta 2, seed {seed}: {text}'


def s5():
  """The advice for a diverged S5 run."""
  try:
    from lra.many import execute
  except ImportError:
    execute = None
  from tests.helpers import small
  for clip in (False, True):
    c = small.config('s5', 'listops')
    c.model.clip_eigenvalues = clip
    config = c.to_dict()
    said = getattr(execute, 'remedy', None)
    yield f'clip_eigenvalues={clip}: try {said(config) if said else "a smaller config.train.learning_rate"}'


def starts():
  """Initial deviations, of width 256, beside the released ones."""
  x, mask = np.zeros((1, 2, 256), 'f'), np.ones((1, 2), bool)
  for name, options, wanted in (
      ('retnet', {}, {'query': .011, 'key': .011, 'value': .009, 'gate': .009,
                      'out': .026}),
      ('mlstm', {}, {'inputs': .040, 'gate': .040, 'out': .125}),
      ('mlstm', {'num_layers': 4}, {'out': .031})):
    fields = models.mixer(name).__dataclass_fields__
    options = {k: v for k, v in options.items() if k in fields}
    mixer = models.mixer(name)(**options)
    p = jax.jit(lambda: mixer.init(
        jax.random.key(0), x, mask, train=False))()['params']
    for key, number in wanted.items():
      found = float(np.std(p[key]['kernel']))
      yield f'{name} {options} {key}: {found:.3f} (released {number})'


def probes():
  """Test strings that are also in train; classes at the end."""
  from lra.core import tasks
  from lra.data_prep import baselines
  from lra.data_prep import probes as made
  for name in made.VARIANTS:
    if name not in tasks.TASKS:
      continue
    content = made.generate(made.VARIANTS[name])
    train = content.splits['train']
    test = content.splits['test']
    known = {train.document(i) for i in train.pairs[:, 0]}
    share = np.mean([test.document(i) in known for i in test.pairs[:, 0]])
    quick = baselines.quick(name, content.splits)
    yield (f'{name}: {100 * share:.1f}% of test strings are in train; chance '
           f'{quick["chance"]:.5f}')


CASES = [norms, starts, s5, probes, deltas]


if __name__ == '__main__':
  for case in CASES:
    if len(sys.argv) > 2 and case.__name__ not in sys.argv[2:]:
      continue
    for line in case():
      print(f'{case.__name__}: {line}', flush=True)
