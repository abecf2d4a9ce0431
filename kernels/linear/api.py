"""Linear attention: the public functions and their dispatch."""

from lra.kernels import checks, dispatch
from lra.kernels.call import Inputs
from lra.kernels.linear import call, features
from lra.kernels.linear.features import LinearOptions


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
      earlier tokens, as a tuple or list; only S_0 without `normalize`; None =
      zeros.
    return_state: also return (S, z), or S alone, in the same form.
    segment_ids: int32 [B, L] or None. Tokens see only tokens of their own id,
      so a row may hold several adjacent sequences. Ids are 0 to N - 1, and
      tokens of one id must be adjacent. Other ids, such as -1, mark padding,
      which acts as masked. The cost depends only on L and N. Plain XLA only.
    num_segments: N, an int; with it states have an axis N after B.
    sequence: a `lra.kernels.sequence.Sequence` if the tokens are one device's
    part
      of longer sequences, as `lra.kernels.sharded` splits them. States and
      segments are not possible then.

  Returns:
    [B, L, H, E], the shape of v, in the dtype of q; with return_state
    (out, state).

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; gives the reason.
  """
  checks.check_options('linear_attention', options, _attend)
  checks.check_qkv(q, k, v, any_value_width=True)
  return _attend((q, k, v), None, kernel, v.shape[-1], **options)


def linear_attention_packed(qkv, *, bias=None, kernel='auto', **options):
  """Computes `linear_attention` of q, k and v in one array, without copies.

  Results and errors are those of `linear_attention`, with E = Dh.

  Args:
    qkv: [B, L, 3, H, Dh], as one matmul x W with W [D, 3, H, Dh] makes it.
    bias: float32 [3, H, Dh] or None, already added to qkv. It changes no
      result. Kernels compute its gradient, the sum of the gradient of qkv over
      tokens. Add `stop_gradient(bias)` to the matmul, or this gradient is
      counted twice.
    kernel, **options: see `linear_attention`.
  """
  checks.check_options('linear_attention_packed', options, _attend)
  checks.check_packed(qkv, bias)
  return _attend((qkv,), bias, kernel, None, **options)


def _attend(arrays, bias, kernel, value_width, *, mask=None, feature_map='elu1',
            normalize=True, scale=1.0, eps=1e-6, initial_state=None,
            return_state=False, segment_ids=None, num_segments=None,
            sequence=None):
  inputs = Inputs(arrays, bias, mask, state=initial_state)
  b, _, h, d = inputs.shape
  checks.check_mask(mask, arrays[0])
  checks.check_segments(segment_ids, num_segments, inputs.shape)
  lead = (b,) if segment_ids is None else (b, num_segments)
  if feature_map not in features.NAMES:
    raise ValueError(f'feature_map must be one of {features.NAMES}, got '
                     f'{feature_map!r}')
  width = d if value_width is None else value_width
  sums = 'initial_state', (*lead, h, d, width), '[B, H, Dh, Dh]'
  if initial_state is not None and normalize:
    checks.check_pair('initial_state', initial_state)
    checks.check_float32('initial_state[0]', initial_state[0], *sums[1:])
    checks.check_float32('initial_state[1]', initial_state[1], (*lead, h, d),
                         '[B, H, Dh]')
    inputs = inputs._replace(state=tuple(initial_state))
  elif initial_state is not None:
    checks.check_float32(*sums[:1], initial_state, *sums[1:])
  options = LinearOptions(feature_map=feature_map, normalize=bool(normalize),
                          scale=checks.check_number('scale', scale),
                          eps=checks.check_number('eps', eps),
                          return_state=bool(return_state),
                          interpret=dispatch.interpret_params())
  return call.run('linear', kernel, options, inputs, segment_ids, num_segments,
                  width, sequence=sequence)
