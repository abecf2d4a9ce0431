"""SimpleTRON attention: linear attention with identity features."""

from kernels import checks, dispatch
from kernels.linear import vjp
from kernels.linear.options import LinearOptions


def simpletron_attention(q, k, v, *, mask=None, scale=None, kernel='auto'):
  """SimpleTRON attention, arXiv 2111.15588 (Yorsh 2021), equation 5.

    out_i = scale * q_i sum_j k_j^T v_j

  Softmax attention with the softmax taken away, in the cheap order. Not
  causal. Masked tokens take no part in the sum; their outputs and gradients
  are exactly 0.

  Args:
    q, k, v: [B, L, H, Dh], float32 or bfloat16, one dtype. Sums are float32;
      float32 products run at the highest precision.
    mask: bool [B, L], True = token; None = all True. Has no gradient.
    scale: a Python number; None = L**-0.5, with the L of q, mask or not.
    kernel: 'xla', 'pallas_tpu', 'pallas_gpu', or 'auto' for the device's own
      where it supports the operands, else 'xla'.

  Returns:
    [B, L, H, Dh] in the dtype of q.

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; says why.
  """
  checks.check_qkv(q, k, v)
  checks.check_mask(mask, q)
  scale = q.shape[1] ** -0.5 if scale is None else scale
  options = linear_options(checks.check_number('scale', scale))
  name = dispatch.resolve('simpletron', kernel, q.shape, q.dtype)
  return vjp.attend(name, options, q, k, v, mask)


def linear_options(scale):
  """The options of linear attention that make it SimpleTRON."""
  return LinearOptions(
    feature_map='identity',
    normalize=False,
    scale=scale,
    interpret=dispatch.interpret_params(),
  )
