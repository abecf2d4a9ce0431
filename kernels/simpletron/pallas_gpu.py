"""SimpleTRON for Hopper: the kernels of linear attention without phi."""

from kernels import dispatch, hopper
from kernels.linear import pallas_gpu as linear
from kernels.simpletron.reference import as_linear


def supported(shape, dtype, interpret=None):
  """Raises NotImplementedError for what `forward` cannot take."""
  local = dispatch.target_is_local()
  hopper.supported('simpletron', shape, dtype, interpret, local)


def forward(q, k, v, mask, options, save):
  """(out, saved or None); see `api.simpletron_attention`."""
  return linear.forward(q, k, v, mask, as_linear(options), save)


def backward(q, k, v, mask, saved, do, options):
  """(dq, dk, dv)."""
  return linear.backward(q, k, v, mask, saved, do, as_linear(options))
