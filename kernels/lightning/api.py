"""Lightning attention: the public functions and their dispatch."""

import dataclasses

import jax
import jax.numpy as jnp

from lra.kernels import checks, chunks, dispatch
from lra.kernels import sequence as sequence_lib
from lra.kernels.call import (
  Inputs,
  activated,
  attend,
  masked,
  with_variable_bias,
)
from lra.kernels.lightning import xla
from lra.kernels.lightning.activation import ACTIVATIONS, LightningOptions

# Largest slope used. exp(-STEEPEST) is 0 in float32, and a length times
# STEEPEST stays finite.
STEEPEST = 1e4


def lightning_attention(q, k, v, *, kernel='auto', **options):
  """Computes lightning attention, arXiv 2401.04658 (Qin 2024), eq. 3 and 4.

    S_t = exp(-slope) S_{t-1} + k_t^T v_t,   out_t = scale * q_t S_t

  This is causal linear attention with one decay per head. Masked tokens add
  nothing to the state, which still decays over them; their outputs and
  gradients are exactly 0. Slopes of 0 give plain causal linear attention. A
  sequence may be split in two without changing the result, if the second part
  starts from the state of the first.

  Args:
    q, k, v, kernel, mask, segment_ids, num_segments, sequence: see
      `lra.kernels.linear_attention`. v must have the width Dh of q.
    slopes: [H], finite, >= 0; None = 2**(-8 (h + 1) / H). No gradient. From
      about 104 on a token sees only itself: exp(-slope) is 0 in float32.
    scale: a Python number, 1 by default.
    activation: applied to q, k and v first: 'identity', the default, or
      'silu' (x sigmoid(x)), which kernels apply when they load them.
    initial_state: float32 [B, H, Dh, Dh] (key by value width), None = zeros.
    return_state: also return the state after the last token.

  Returns:
    [B, L, H, Dh] in the dtype of q; with return_state (out, state), where the
    state is float32 [B, H, Dh, Dh].

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; gives the reason.
  """
  checks.check_options('lightning_attention', options, _attend)
  checks.check_qkv(q, k, v)
  return _attend((q, k, v), None, kernel, **options)


def lightning_attention_packed(qkv, *, bias=None, kernel='auto', **options):
  """Computes `lightning_attention` of q, k and v in one array, without copies.

  `qkv` and `bias` are those of `linear_attention_packed`, results and errors
  those of `lightning_attention`.
  """
  checks.check_options('lightning_attention_packed', options, _attend)
  checks.check_packed(qkv, bias)
  return _attend((qkv,), bias, kernel, **options)


def _attend(arrays, bias, kernel, *, slopes=None, mask=None, scale=1.0,
            activation='identity', initial_state=None, return_state=False,
            segment_ids=None, num_segments=None, sequence=None):
  inputs = Inputs(arrays, bias, mask, state=initial_state)
  b, _, h, d = inputs.shape
  checks.check_mask(mask, arrays[0])
  checks.check_segments(segment_ids, num_segments, inputs.shape)
  lead = (b,) if segment_ids is None else (b, num_segments)
  if initial_state is not None:
    checks.check_float32('initial_state', initial_state, (*lead, h, d, d),
                         '[B, H, Dh, Dh]')
  if activation not in ACTIVATIONS:
    raise ValueError(f'activation must be one of {ACTIVATIONS}, got '
                     f'{activation!r}')
  if slopes is None:
    slopes = chunks.default_slopes(h)
  checks.check_slopes(slopes, h)
  slopes = jax.lax.stop_gradient(jnp.asarray(slopes, jnp.float32))
  slopes = jnp.minimum(slopes, STEEPEST)
  options = LightningOptions(
      scale=checks.check_number('scale', scale), activation=activation,
      return_state=bool(return_state), interpret=dispatch.interpret_params())
  name = dispatch.resolve(
      'lightning', kernel, inputs.shape, inputs.dtype,
      state=bool(initial_state is not None or return_state or sequence),
      segments=segment_ids is not None)
  inputs = inputs._replace(slopes=slopes)
  if sequence is not None:
    sequence_lib.check_whole(initial_state=initial_state,
                             return_state=return_state, segment_ids=segment_ids)
    whole = (activated(inputs) if activation == 'silu'
             else masked(with_variable_bias(inputs)))
    inputs = inputs._replace(
        state=sequence_lib.state_before(sequence, *whole.apart()[1:], slopes))
  if segment_ids is not None:
    inputs = with_variable_bias(inputs)
    out, state = xla.of_segments(inputs, options, segment_ids, num_segments)
    return (out, state) if return_state else out
  if activation == 'silu' and name == 'xla':
    inputs = activated(inputs)
    options = dataclasses.replace(options, activation='identity')
  out, state = attend('lightning', name, options, inputs)
  return (out, state) if return_state else out
