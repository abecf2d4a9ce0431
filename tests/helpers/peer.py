"""Compares a mixer with a PyTorch implementation on the same parameters.

PyTorch reshapes our parameters for the other implementation. So autograd gives
gradients of our parameters and of the input, which can be compared.
"""

import functools
import importlib.metadata
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.share import torch_weights

torch = pytest.importorskip(
    'torch', reason='PyTorch, of the extra [peers], is not installed')


def load(module, package):
  """Imports a module; skips the calling test if it is not installed."""
  return pytest.importorskip(
      module, reason=f'{package}, of the extra [peers], is not installed')


def version(package):
  """Returns the installed version without its build suffix."""
  return importlib.metadata.version(package).partition('+')[0]


def linear(dense, ins=1):
  """Returns weight [outs, ins] and bias [outs], if any, of a dense layer.

  Its kernel has `ins` input axes.
  """
  kernel = dense['kernel']
  found = {'weight': kernel.reshape(math.prod(kernel.shape[:ins]), -1).T}
  return {**found, 'bias': dense['bias'].reshape(-1)} if (
      'bias' in dense) else found


def call(module, parts, *args, **kwargs):
  """Applies a module with all of its parameters replaced.

  `parts` is {name of a layer, '' for the module itself: its parameters}.
  """
  state = {f'{layer}.{name}' if layer else name: p
           for layer, params in parts.items() for name, p in params.items()}
  assert set(state) == {name for name, _ in module.named_parameters()}
  return torch.func.functional_call(module, state, args, kwargs)


def apply(module, model, package, params, *args, **kwargs):
  """Applies a module with our parameters, joined by a table of `torch_weights`.

  It also checks that `torch_weights.params` makes our parameters of the joined
  ones.
  """
  state, shapes = {}, {n: p.shape for n, p in module.named_parameters()}
  for theirs, named in torch_weights.TABLES[model, package].items():
    if theirs in shapes:
      shape = shapes[theirs]
      parts = [functools.reduce(dict.__getitem__, name.split('.'), params)
               for name in named.removeprefix('=').split()]
      rows = [p.numel() * shape[0] // shape.numel() for p in parts]
      state[theirs] = torch.cat([
          p.reshape(n, -1) if named[0] == '=' else p.reshape(-1, n).T
          for p, n in zip(parts, rows, strict=True)]).reshape(shape)
  ours = jax.tree.map(lambda p: p.detach().numpy(), params)
  jax.tree.map(np.testing.assert_array_equal, ours, torch_weights.params(
      model, package, {n: p.detach() for n, p in state.items()}, ours))
  assert set(state) == set(shapes)
  return torch.func.functional_call(module, state, args, kwargs)


def heads(x, dense):
  """Projects [B, L, D] into heads, [B, H, L, Dh]."""
  out = torch.einsum('bld,dhe->bhle', x, dense['kernel'])
  return out + dense['bias'][:, None] if 'bias' in dense else out


def merge(o, dense):
  """Projects heads [B, H, L, Dh] back to [B, L, D]."""
  return torch.einsum('bhle,hed->bld', o, dense['kernel']) + dense['bias']


def around(attend):
  """Adds the projections of a `HeadMixer` to attention in PyTorch.

  `attend` maps q, k, v [B, H, L, Dh] and mask [B, L] to outputs. Returns a
  function (params, x, mask) -> outputs [B, L, D]; see `compare`.
  """
  def theirs(params, x, mask):
    qkv = (heads(x, params[name]) for name in ('query', 'key', 'value'))
    return merge(attend(*qkv, mask), params['out'])
  return theirs


def compare(mixer, theirs, variables, x, mask, tolerance):
  """Compares outputs at tokens, and all gradients, by relative difference.

  `theirs` is a PyTorch function (params, x, mask) -> outputs [B, L, D]. Returns
  the difference of outputs and that of gradients; see `difference`.
  """
  rest = {k: v for k, v in variables.items() if k != 'params'}
  weights = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
  weights *= mask[..., None]

  def loss(params, x):
    y = mixer.apply({'params': params, **rest}, x, mask, train=False)
    return jnp.sum(y * weights), y

  wanted = variables.get('params', {}), x
  (_, y), grads = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(
      *wanted)
  tensors = jax.tree.map(
      lambda a: torch.tensor(np.asarray(a), requires_grad=True), wanted)
  their_y = theirs(*tensors, torch.tensor(mask))
  (their_y * torch.tensor(weights)).sum().backward()
  their_grads = jax.tree.map(lambda a: a.grad.numpy(), tensors)
  found = (difference([np.asarray(y)[mask]], [their_y.detach().numpy()[mask]]),
           difference(jax.tree.leaves(grads), jax.tree.leaves(their_grads)))
  assert max(found) <= tolerance, (
      f'outputs differ by {found[0]:.1e}, gradients by {found[1]:.1e}')
  return found


def difference(got, want):
  """Returns the largest ||got - want|| / ||want|| over lists of arrays.

  The divisor is at least a tenth of the norm of all arrays `want` together.
  Some gradients, such as those of key biases in a softmax, are only rounding
  errors.
  """
  assert [x.shape for x in got] == [y.shape for y in want]
  norm = np.linalg.norm([np.linalg.norm(y) for y in want])
  return float(max(
      np.linalg.norm(np.subtract(x, y, dtype=np.float64))
      / max(np.linalg.norm(y), norm / 10)
      for x, y in zip(got, want, strict=True)))
