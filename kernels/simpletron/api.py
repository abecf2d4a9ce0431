"""SimpleTRON attention: the public function and its dispatch."""

from kernels import checks, dispatch, noncausal
from kernels.simpletron.options import SimpletronOptions


def simpletron_attention(
  q, k, v, *, mask=None, scale=None, implementation=None
):
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
    implementation: 'xla', 'pallas_tpu', 'pallas_gpu'; None or 'auto' takes the
      device's kernel where it supports the operands, else 'xla'.

  Returns:
    [B, L, H, Dh] in the dtype of q.

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named implementation cannot run; says why.
  """
  checks.check_qkv(q, k, v)
  checks.check_mask(mask, q)
  scale = q.shape[1] ** -0.5 if scale is None else scale
  options = SimpletronOptions(
    scale=checks.check_number('scale', scale),
    interpret=dispatch.interpret_params(),
  )
  name = dispatch.resolve('simpletron', implementation, q.shape, q.dtype)
  return noncausal.attend('simpletron', name, options, q, k, v, mask)

