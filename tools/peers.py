"""Kernels of other packages, timed on the same tensors.

The PyTorch packages are flash-linear-attention (`fla`), causal with decay, and
flash-bidirectional-linear-attention (`flash_bla`), not causal. The JAX package
is jax-linear-attention (`jla`), causal with decay. All are optional.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np

from lra.kernels import chunks
from tools import errors
from tools.errors import relative_rms


class Missing(Exception):
  """A peer is missing or cannot run; the message gives the reason."""


def peers(op):
  """Returns a dict from name to function(q, k, v, do) of JAX arrays.

  The function returns two torch functions without arguments: one computes the
  result, the other the result and the gradients.
  """
  if op == 'lightning':
    return {'fla chunk': _simple_gla('chunk_simple_gla'),
            'fla fused_chunk': _simple_gla('fused_chunk_simple_gla')}
  return {'flash_bla': _flash_bla(op)}


def jax_peers(op):
  """Returns a dict from name to a function that returns attend(q, k, v).

  `attend` takes and returns JAX arrays [B, L, H, Dh].
  """
  return {'jla simple_gla': _jla} if op == 'lightning' else {}


def _jla():
  # Imported here, because the import registers kernels, which must not happen
  # first in a thread.
  _import('jla.ops.mosaic_gpu')
  return jla_lightning('mosaic_gpu')


def jla_lightning(implementation):
  """Returns attend(q, k, v): jla's lightning attention with default slopes.

  `implementation` is jla's 'mosaic_gpu' for Hopper, or 'chunked' or 'reference'
  for any device.
  """
  from jla import ops

  def attend(q, k, v):
    decay_H = -jnp.asarray(chunks.default_slopes(q.shape[2]), jnp.float32)
    return ops.linear_attention('simple_gla', q, k, v,
                                g=jnp.broadcast_to(decay_H, q.shape[:3]),
                                scale=1.0, impl=implementation)[0]

  return attend


def timer(function):
  """Returns a timer, calls -> seconds per call, between two CUDA events."""
  import torch

  def run(calls):
    function()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
      function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls

  return run


def array(tensor):
  """Converts a torch tensor to numpy float32."""
  return np.asarray(tensor.detach().float().cpu())


def _simple_gla(name):
  """Returns a maker of fla's lightning attention, as in `peers`.

  Some Triton versions miscompile the gated backward pass on Hopper, so check
  its error together with its time.
  """
  def make(q, k, v, do):
    torch = _import('torch')
    attend = getattr(_import('fla.ops.simple_gla'), name)
    gamma = torch.tensor(-np.asarray(chunks.default_slopes(q.shape[2]))).cuda()

    def forward(q, k, v):
      return attend(q, k, v, g_gamma=gamma, scale=1.0)[0]

    return _runs(torch, forward, q, k, v, do)

  return make


def _flash_bla(op):
  """Returns a maker of flash_bla's functions, as in `peers`.

  They take [B, H, L, Dh] and no mask; torch applies the feature map.
  """
  def make(q, k, v, do):
    torch = _import('torch')
    if op == 'linear':
      attend = _import('flash_bla.ops.linear_attn.fused').linear_attention

      def forward(q, k, v):
        elu = torch.nn.functional.elu
        return attend(elu(q) + 1, elu(k) + 1, v)
    else:
      attend = _import('flash_bla.ops.simple_la.fused').simple_la
      scale = q.shape[1] ** -0.5

      def forward(q, k, v):
        return attend(q, k, v, scale)

    return _runs(torch, forward, q, k, v, do, heads_first=True)

  return make


def _import(name):
  if jax.default_backend() != 'gpu':
    raise Missing('needs an NVIDIA GPU')
  try:
    return importlib.import_module(name)
  except Exception as error:  # treats a broken peer as missing
    raise Missing(f'{name}: {error}') from error


def _runs(torch, forward, q, k, v, do, heads_first=False):
  tensors = [torch.from_dlpack(x) for x in (q, k, v, do)]
  if heads_first:
    tensors = [x.transpose(1, 2).contiguous() for x in tensors]
  *inputs, do = tensors

  def run():
    with torch.no_grad():
      return _rows_first(forward(*inputs), heads_first)

  def both():
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = forward(*leaves)
    grads = torch.autograd.grad(out, leaves, do)
    return [_rows_first(x, heads_first) for x in (out, *grads)]

  return run, both


def _rows_first(x, heads_first):
  return x.transpose(1, 2) if heads_first else x


def relative(got, want):
  """Returns the largest relative RMS error over 'out' and given gradients."""
  names = ('out', *errors.GRADIENTS[:3])
  pairs = zip(names, got, strict=False)
  return max(relative_rms(x, want[name]) for name, x in pairs)
