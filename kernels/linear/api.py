"""Linear attention: the public function and its dispatch."""

from kernels import checks, dispatch
from kernels.linear import features, vjp
from kernels.linear.options import LinearOptions


def linear_attention(
  q,
  k,
  v,
  *,
  mask=None,
  feature_map='elu1',
  normalize=True,
  scale=1.0,
  eps=1e-6,
  kernel='auto',
):
  """Linear attention, arXiv 2006.16236 (Katharopoulos 2020), equation 5.

    S = sum_j phi(k_j)^T v_j,  z = sum_j phi(k_j)
    out_i = scale * phi(q_i) S / (phi(q_i) . z + eps)

  Not causal. Masked tokens take no part in the sums; their outputs and
  gradients are exactly 0.

  Args:
    q, k, v: [B, L, H, Dh], float32 or bfloat16, one dtype. Sums are float32;
      float32 products run at the highest precision. 'xla' also takes values
      of another width than the features: v [B, L, H, E].
    mask: bool [B, L], True = token; None = all True. Has no gradient.
    feature_map: phi, 'elu1' (elu(x) + 1), 'relu' or 'identity'.
    normalize: False leaves the division out.
    scale, eps: Python numbers.
    kernel: 'xla', 'pallas_tpu', 'pallas_gpu', or 'auto' for the device's own
      where it supports the operands, else 'xla'.

  Returns:
    [B, L, H, Dh], the shape of v, in the dtype of q.

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; says why.
  """
  checks.check_qkv(q, k, v, any_value_width=True)
  checks.check_mask(mask, q)
  if feature_map not in features.NAMES:
    raise ValueError(
      f'feature_map must be one of {features.NAMES}, got {feature_map!r}'
    )
  options = LinearOptions(
    feature_map=feature_map,
    normalize=bool(normalize),
    scale=checks.check_number('scale', scale),
    eps=checks.check_number('eps', eps),
    interpret=dispatch.interpret_params(),
  )
  name = dispatch.resolve(
    'linear', kernel, q.shape, q.dtype, value_width=v.shape[-1]
  )
  return vjp.attend(name, options, q, k, v, mask)
