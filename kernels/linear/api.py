"""Linear, SimpleTRON and lightning attention: the public functions."""

import dataclasses

import jax
import jax.numpy as jnp

from lra.kernels import call, checks, chunks, dispatch
from lra.kernels import sequence as sequence_lib
from lra.kernels.lightning import xla as lightning_xla
from lra.kernels.linear import features, xla
from lra.kernels.linear.operands import Inputs, Options

ACTIVATIONS = ('identity', 'silu')
# Largest slope used. exp(-STEEPEST) is 0 in float32, and a length times
# STEEPEST stays finite.
STEEPEST = 1e4


def linear_attention(q, k, v, *, kernel='auto', **options):
  """Computes linear attention, arXiv 2006.16236 (Katharopoulos 2020), eq. 5.

    S = S_0 + sum_j phi(k_j)^T v_j,  z = z_0 + sum_j phi(k_j)
    out_i = scale * phi(q_i) S / (phi(q_i) . z + eps)

  It is not causal. Masked tokens are left out of the sums; their outputs and
  gradients are exactly 0.

  Args:
    q, k, v: [B, L, H, Dh], float32 or bfloat16, one dtype. Sums are float32;
      float32 matmuls run at the highest precision. 'xla' also takes v of
      another width E: [B, L, H, E].
    kernel: a name in `kernels.OPS` of the operation, or 'auto': a kernel for
      this device if it supports the operands, else 'xla'.
    mask: bool [B, L], True = token; None = all True. Has no gradient.
    feature_map: phi, 'elu1' (elu(x) + 1, the default), 'relu' or 'identity'.
    normalize: False leaves out the division.
    scale, eps: Python numbers, 1 and 1e-6 by default.
    initial_state: (S_0, z_0), float32 [B, H, Dh, E] and [B, H, Dh], sums over
      earlier tokens; only S_0 without `normalize`; None = zeros.
    return_state: also return (S, z), or S alone, in the same form.
    segment_ids: int32 [B, L] or None. Tokens see only tokens of their own id,
      so a row may hold several adjacent sequences. Ids are 0 to N - 1; others,
      such as -1, mark padding, which acts as masked. Plain XLA only.
    num_segments: N, an int; with it states have an axis N after B.
    sequence: a `lra.kernels.sequence.Sequence` if the tokens are one device's
      part of longer sequences. States and segments are not possible then.

  Returns:
    [B, L, H, E] in the dtype of q; with return_state (out, state).

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; gives the reason.
  """
  return _call(_linear, (q, k, v), kernel, options)


def linear_attention_packed(qkv, *, bias=None, kernel='auto', **options):
  """Computes `linear_attention` of q, k and v in one array, without copies.

  `qkv` is [B, L, 3, H, Dh], as one matmul x W with W [D, 3, H, Dh] makes it.
  `bias`, float32 [3, H, Dh] or None, is already added to it and changes no
  result. Kernels compute its gradient, the sum of the gradient of qkv over
  tokens. Add `stop_gradient(bias)` to the matmul, or it is counted twice.
  """
  return _call(_linear, (qkv,), kernel, options, bias)


def simpletron_attention(q, k, v, *, kernel='auto', **options):
  """Computes SimpleTRON attention, arXiv 2111.15588 (Yorsh 2021), eq. 5.

    out_i = scale * q_i S,  S = S_0 + sum_j k_j^T v_j

  This is softmax attention without the softmax; k^T v is computed first. It is
  not causal. Arguments and errors are those of `linear_attention`, except:

  Args:
    v: [B, L, H, Dh], like q.
    scale: a Python number; None = L**-0.5. L counts masked tokens, all segments
      of a row and, with `sequence`, the tokens on all devices.
    initial_state: S_0, float32 [B, H, Dh, Dh]; None = zeros.
    return_state: also return S.
  """
  return _call(_simpletron, (q, k, v), kernel, options)


def simpletron_attention_packed(qkv, *, bias=None, kernel='auto', **options):
  """Computes `simpletron_attention`; see `linear_attention_packed`."""
  return _call(_simpletron, (qkv,), kernel, options, bias)


def lightning_attention(q, k, v, *, kernel='auto', **options):
  """Computes lightning attention, arXiv 2401.04658 (Qin 2024), eq. 3 and 4.

    S_t = exp(-slope) S_{t-1} + k_t^T v_t,   out_t = scale * q_t S_t

  This is causal linear attention with one decay per head. Masked tokens add
  nothing to the state, which still decays over them; their outputs and
  gradients are exactly 0. A sequence may be split in two without changing the
  result, if the second part starts from the state of the first. Arguments and
  errors are those of `linear_attention`, except:

  Args:
    v: [B, L, H, Dh], like q.
    slopes: [H], finite, >= 0; None = 2**(-8 (h + 1) / H). No gradient. From
      about 104 on a token sees only itself: exp(-slope) is 0 in float32.
    activation: applied to q, k and v first: 'identity', the default, or
      'silu' (x sigmoid(x)), which kernels apply when they load them.
    initial_state: float32 [B, H, Dh, Dh] (key by value width), None = zeros.
    return_state: also return the state after the last token.
  """
  return _call(_lightning, (q, k, v), kernel, options)


def lightning_attention_packed(qkv, *, bias=None, kernel='auto', **options):
  """Computes `lightning_attention`; see `linear_attention_packed`."""
  return _call(_lightning, (qkv,), kernel, options, bias)


def _call(attend, arrays, kernel, options, bias=None):
  packed = len(arrays) == 1
  name = f'{attend.__name__[1:]}_attention' + '_packed' * packed
  checks.check_options(name, options, attend)
  if packed:
    checks.check_packed(*arrays, bias)
  else:
    checks.check_qkv(*arrays, any_value_width=attend is _linear)
  return attend(Inputs(arrays, bias), kernel, **options)


def _linear(inputs, kernel, *, mask=None, feature_map='elu1', normalize=True,
            scale=1.0, eps=1e-6, initial_state=None, return_state=False,
            segment_ids=None, num_segments=None, sequence=None):
  state = initial_state
  lead = _checked(inputs, mask, segment_ids, num_segments)
  if feature_map not in features.NAMES:
    raise ValueError(f'feature_map must be one of {features.NAMES}, got '
                     f'{feature_map!r}')
  d = inputs.shape[3]
  width = d if inputs.packed else inputs.arrays[2].shape[-1]
  sums, axes = (*lead, d, width), '[B, H, Dh, Dh]'
  if state is not None and normalize:
    checks.check_pair('initial_state', state)
    checks.check_float32('initial_state[0]', state[0], sums, axes)
    checks.check_float32('initial_state[1]', state[1], sums[:-1], '[B, H, Dh]')
    state = tuple(state)
  elif state is not None:
    checks.check_float32('initial_state', state, sums, axes)
  options = Options(feature_map=feature_map, normalize=bool(normalize),
                    scale=checks.check_number('scale', scale),
                    eps=checks.check_number('eps', eps),
                    return_state=bool(return_state),
                    interpret=dispatch.interpret_params())
  return _run('linear', kernel, options,
              inputs._replace(mask=mask, state=state), segment_ids,
              num_segments, sequence, value_width=width)


def _simpletron(inputs, kernel, *, mask=None, scale=None, initial_state=None,
                return_state=False, segment_ids=None, num_segments=None,
                sequence=None):
  lead = _checked(inputs, mask, segment_ids, num_segments)
  _check_state(inputs, lead, initial_state)
  if scale is None:
    length = inputs.shape[1] if sequence is None else sequence.length
    scale = length ** -0.5
  options = Options(feature_map='identity', normalize=False,
                    scale=checks.check_number('scale', scale),
                    return_state=bool(return_state),
                    interpret=dispatch.interpret_params())
  return _run('simpletron', kernel, options,
              inputs._replace(mask=mask, state=initial_state), segment_ids,
              num_segments, sequence)


def _lightning(inputs, kernel, *, slopes=None, mask=None, scale=1.0,
               activation='identity', initial_state=None, return_state=False,
               segment_ids=None, num_segments=None, sequence=None):
  lead = _checked(inputs, mask, segment_ids, num_segments)
  _check_state(inputs, lead, initial_state)
  if activation not in ACTIVATIONS:
    raise ValueError(f'activation must be one of {ACTIVATIONS}, got '
                     f'{activation!r}')
  heads = inputs.shape[2]
  if slopes is None:
    slopes = chunks.default_slopes(heads)
  checks.check_slopes(slopes, heads)
  slopes = jax.lax.stop_gradient(jnp.asarray(slopes, jnp.float32))
  slopes = jnp.minimum(slopes, STEEPEST)
  options = Options(activation=activation,
                    scale=checks.check_number('scale', scale),
                    return_state=bool(return_state),
                    interpret=dispatch.interpret_params())
  return _run('lightning', kernel, options,
              inputs._replace(mask=mask, slopes=slopes, state=initial_state),
              segment_ids, num_segments, sequence)


def _checked(inputs, mask, segment_ids, num_segments):
  """Returns the leading axes of states: (B, H), or (B, N, H) of segments."""
  b, _, h, _ = inputs.shape
  checks.check_mask(mask, inputs.arrays[0])
  checks.check_segments(segment_ids, num_segments, inputs.shape)
  return (b, h) if segment_ids is None else (b, num_segments, h)


def _check_state(inputs, lead, state):
  if state is not None:
    d = inputs.shape[3]
    checks.check_float32('initial_state', state, (*lead, d, d),
                         '[B, H, Dh, Dh]')


def _run(op, kernel, options, inputs, segment_ids, num_segments, sequence,
         **needs):
  causal = op == 'lightning'
  silu = options.activation == 'silu'
  if sequence is not None:
    sequence_lib.check_whole(initial_state=inputs.state,
                             return_state=options.return_state,
                             segment_ids=segment_ids)
    whole = (inputs.activated() if silu
             else inputs.with_variable_bias().masked())
    elsewhere = sequence_lib.state_before if causal else sequence_lib.sums
    inputs = inputs._replace(state=elsewhere(sequence, whole, options))
  name = dispatch.resolve(op, kernel, inputs.shape, inputs.dtype,
                          state=inputs.state is not None
                          or options.return_state,
                          segments=segment_ids is not None, **needs)
  if segment_ids is not None:
    of_segments = (lightning_xla if causal else xla).of_segments
    out, state = of_segments(inputs.with_variable_bias(), options, segment_ids,
                             num_segments)
  else:
    if silu and name == 'xla':
      inputs = inputs.activated()
      options = dataclasses.replace(options, activation='identity')
    out, state = call.run('lightning' if causal else 'linear', name, options,
                          inputs)
  return (out, state) if options.return_state else out
