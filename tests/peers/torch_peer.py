"""Weights from modules of PyTorch, and outputs compared with theirs."""

import jax
import numpy as np
import torch

import small


def inputs(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def array(tensor):
  return tensor.detach().numpy()


def dense(linear):
  """Parameters of a dense layer of `torch.nn.Linear`, or of a width-1 conv."""
  weight = array(linear.weight).reshape(*linear.weight.shape[:2])
  params = {'kernel': weight.T}
  return params if linear.bias is None else {**params,
                                             'bias': array(linear.bias)}


def split(params, num_heads):
  """The same into heads: kernel [D, H, Dh], bias [H, Dh]."""
  return {name: p.reshape(*p.shape[:-1], num_heads, -1)
          for name, p in params.items()}


def merge(params, num_heads):
  """The same from heads: kernel [H, Dh, D]."""
  kernel = params['kernel']
  return {**params, 'kernel': kernel.reshape(num_heads, -1, kernel.shape[-1])}


def identity(num_heads, width):
  """An output projection that does nothing."""
  return merge({'kernel': np.eye(width, dtype=np.float32),
                'bias': np.zeros(width, np.float32)}, num_heads)


def check(run, peer, x, tolerance=1e-5):
  """Outputs and the gradient of the input, of functions of x [B, L, D].

  Args:
    run: ours, in JAX.
    peer: theirs, of a tensor.
    x: float32.
    tolerance: see `small.assert_close`.
  """
  y, pull = jax.vjp(jax.jit(run), x)
  g = inputs(*y.shape, seed=1)
  their_x = torch.tensor(x, requires_grad=True)
  their_y = peer(their_x)
  their_y.backward(torch.tensor(g))
  got, want = (y, *pull(g)), (array(their_y), array(their_x.grad))
  print([float(np.linalg.norm(a - b) / np.linalg.norm(b))
         for a, b in zip(got, want, strict=True)])
  small.assert_close(got, want, tolerance)
