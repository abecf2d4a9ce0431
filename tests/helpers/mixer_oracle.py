"""Checks a mixer against its equation in float64.

An oracle is a function `oracle(xp, params, x, mask)`, written from the paper's
equation. It uses the array functions of `xp`: numpy for the outputs, jax.numpy
in float64 for the gradients. It returns outputs [B, L, D]. Those at padding are
not compared.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# Compiles code that is not itself under test in half the time.
quick_jit = functools.partial(jax.jit, compiler_options={
    'xla_backend_optimization_level': 0,
    'xla_llvm_disable_expensive_passes': True})
# Marks a case of a parametrised test that runs only with `--full`.
full = functools.partial(pytest.param, marks=pytest.mark.full)


def ragged(*lengths, width, length=None, seed=0):
  """Returns inputs [B, L, D] and a mask; row i has `lengths[i]` tokens."""
  length = length or max(lengths)
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(len(lengths), length, width)).astype(np.float32)
  return x, np.arange(length) < np.array(lengths)[:, None]


def init(mixer, x, mask, seed=0, noise=0.1):
  """Returns the variables of a mixer, with no parameter equal to zero."""
  variables = quick_jit(functools.partial(mixer.init, train=False))(
      jax.random.key(seed), x, mask)
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
      lambda p: np.asarray(p) + noise * rng.normal(size=p.shape).astype('f'),
      variables.get('params', {}))
  return {**variables, 'params': params}


def start(mixer, x, mask):
  """Returns the parameters that training of a mixer starts from."""
  variables = quick_jit(functools.partial(mixer.init, train=False))(
      jax.random.key(0), x, mask)
  return jax.device_get(variables['params'])


def shapes(mixer, x, mask):
  """Returns the shapes of the mixer's parameters without computing them."""
  return jax.eval_shape(functools.partial(mixer.init, train=False),
                        jax.random.key(0), x, mask).get('params', {})


def attention(xp, q, k, v, mask, scale):
  """Computes softmax attention over the keys that `mask` [B, S] allows."""
  logits = scale * xp.einsum('blhd,bshd->bhls', q, k)
  return weigh(xp, softmax(xp, logits, mask), v)


def softmax(xp, logits, mask):
  """Computes softmax of logits [B, H, L, S] over the keys in `mask` [B, S]."""
  return softmax_under(xp, logits, mask[:, None, None, :])


def softmax_under(xp, logits, seen):
  """Computes softmax over the keys that are `seen` (bool); 0 if none is."""
  top = xp.where(seen, logits, -1e30).max(-1, keepdims=True)
  e = xp.where(seen, xp.exp(xp.where(seen, logits - top, 0)), 0)
  total = e.sum(-1, keepdims=True)
  return e / xp.where(total > 0, total, 1)


def weigh(xp, weights, v):
  return xp.einsum('bhls,bshd->blhd', weights, v)


def turn(xp, x):
  """Applies rotary positions to x [B, L, H, W].

  Channels c and c + W/2 form a complex number. At position p it is multiplied
  by exp(i p 10000^(-2c/W)).
  """
  L, W = x.shape[1], x.shape[3]
  angle = np.outer(np.arange(L), 10_000.0 ** (-np.arange(0, W, 2) / W))
  z = (x[..., :W // 2] + 1j * x[..., W // 2:]) * np.exp(1j * angle)[:, None]
  return xp.concatenate([z.real, z.imag], -1)


def heads(xp, x, dense):
  """Projects [B, L, D] into heads, [B, L, H, Dh]."""
  out = xp.einsum('bld,dhe->blhe', x, dense['kernel'])
  return out + dense['bias'] if 'bias' in dense else out


def qkv(xp, x, params):
  """Returns queries, keys and values, each [B, L, H, Dh]."""
  return tuple(heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))


def merge(xp, o, dense):
  out = xp.einsum('blhe,hed->bld', o, dense['kernel'])
  return out + dense['bias'] if 'bias' in dense else out


def transformer(xp, params, x, mask, turn=lambda xp, y: y, bias=0):
  """Computes the Transformer; `turn` rotates, and logits have a `bias`."""
  q, k, v = qkv(xp, x, params)
  logits = xp.einsum('blhd,bshd->bhls', turn(xp, q), turn(xp, k))
  weights = softmax(xp, logits / q.shape[-1]**0.5 + bias, mask)
  return merge(xp, weigh(xp, weights, v), params['out'])


def check(mixer, oracle, x, mask, *, tolerance=1e-5, variables=None):
  """Compares outputs and all gradients of `mixer` with those of `oracle`.

  The tolerance is relative to the largest entry of each array, or absolute if
  that entry is below 1.
  """
  variables = variables or init(mixer, x, mask)
  rest = {k: v for k, v in variables.items() if k != 'params'}
  rng = np.random.default_rng(1)
  cotangent = rng.normal(size=x.shape) * mask[..., None]

  def loss(params, x):
    y = mixer.apply({**rest, 'params': params}, x, mask, train=False)
    return jnp.sum(y * cotangent.astype(np.float32)), y

  (_, y), grads = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(
      variables['params'], x)
  assert y.shape == x.shape and np.isfinite(y).all()
  exact = jax.tree.map(lambda a: np.asarray(a, np.float64),
                       variables['params'])
  want = oracle(np, exact, x.astype(np.float64), mask)
  close(np.asarray(y)[mask], want[mask], tolerance, 'outputs')
  with jax.enable_x64(True):
    want = quick_jit(jax.grad(
        lambda p, x: jnp.sum(oracle(jnp, p, x, mask) * cotangent), (0, 1)))(
            exact, x.astype(np.float64))
  jax.tree_util.tree_map_with_path(
      lambda path, got, want: close(got, want, tolerance,
                                    jax.tree_util.keystr(path)),
      grads, want)


@functools.partial(jax.jit, static_argnums=0)
def _apply(mixer, variables, x, mask):
  return mixer.apply(variables, x, mask, train=False)


def apply(mixer, variables, x, mask):
  """Returns the mixer's outputs in evaluation mode, as numpy.

  The program of equal mixers and shapes is compiled once.
  """
  return np.asarray(_apply(mixer, variables, x, mask))


def close(got, want, tolerance, what):
  got, want = np.asarray(got), np.asarray(want)
  assert want.dtype == np.float64 and got.shape == want.shape
  error = np.abs(got - want).max(initial=0)
  limit = tolerance * max(1.0, np.abs(want).max(initial=0))
  assert error <= limit, f'{what}: error {error:.2e} above {limit:.2e}'
