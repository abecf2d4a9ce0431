"""SimpleTRON attention: linear attention with identity features."""

from lra.kernels import checks, dispatch
from lra.kernels.call import Inputs
from lra.kernels.linear import call
from lra.kernels.linear.features import LinearOptions


def simpletron_attention(q, k, v, *, kernel='auto', **options):
  """Computes SimpleTRON attention, arXiv 2111.15588 (Yorsh 2021), eq. 5.

    out_i = scale * q_i S,  S = S_0 + sum_j k_j^T v_j

  This is softmax attention without the softmax; k^T v is computed first. It is
  not causal. Masked tokens are left out of the sum; their outputs and gradients
  are exactly 0.

  Args:
    q, k, v, kernel, mask, segment_ids, num_segments, sequence: see
      `lra.kernels.linear_attention`. v must have the width Dh of q.
    scale: a Python number; None = L**-0.5. L counts masked tokens, all segments
      of a row and, with `sequence`, the tokens on all devices.
    initial_state: S_0, float32 [B, H, Dh, Dh], the sum over earlier tokens;
      None = zeros.
    return_state: also return S.

  Returns:
    [B, L, H, Dh] in the dtype of q; with return_state (out, S), where S is
    float32 [B, H, Dh, Dh].

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; gives the reason.
  """
  checks.check_options('simpletron_attention', options, _attend)
  checks.check_qkv(q, k, v)
  return _attend((q, k, v), None, kernel, **options)


def simpletron_attention_packed(qkv, *, bias=None, kernel='auto', **options):
  """Computes `simpletron_attention` of q, k and v in one array, without copies.

  `qkv` and `bias` are those of `linear_attention_packed`, results and errors
  those of `simpletron_attention`.
  """
  checks.check_options('simpletron_attention_packed', options, _attend)
  checks.check_packed(qkv, bias)
  return _attend((qkv,), bias, kernel, **options)


def _attend(arrays, bias, kernel, *, mask=None, scale=None, initial_state=None,
            return_state=False, segment_ids=None, num_segments=None,
            sequence=None):
  inputs = Inputs(arrays, bias, mask, state=initial_state)
  checks.check_mask(mask, arrays[0])
  b, length, h, d = inputs.shape
  checks.check_segments(segment_ids, num_segments, inputs.shape)
  lead = (b,) if segment_ids is None else (b, num_segments)
  if initial_state is not None:
    checks.check_float32('initial_state', initial_state, (*lead, h, d, d),
                         '[B, H, Dh, Dh]')
  if scale is None:
    scale = (length if sequence is None else sequence.length) ** -0.5
  options = linear_options(checks.check_number('scale', scale),
                           bool(return_state))
  return call.run('simpletron', kernel, options, inputs, segment_ids,
                  num_segments, sequence=sequence)


def linear_options(scale, return_state=False):
  """Returns options of linear attention that make it SimpleTRON."""
  return LinearOptions(feature_map='identity', normalize=False, scale=scale,
                       return_state=return_state,
                       interpret=dispatch.interpret_params())
