"""SimpleTRON in plain XLA: linear attention without phi and normaliser."""

from kernels.linear import reference as linear
from kernels.linear.options import LinearOptions


def as_linear(options):
  """The same equation in the words of linear attention."""
  return LinearOptions(
    feature_map='identity',
    normalize=False,
    scale=options.scale,
    interpret=options.interpret,
  )


def forward(q, k, v, mask, options, save):
  """(out, saved or None); see `api.simpletron_attention`."""
  return linear.forward(q, k, v, mask, as_linear(options), save)


def backward(q, k, v, mask, saved, do, options):
  """(dq, dk, dv)."""
  return linear.backward(q, k, v, mask, saved, do, as_linear(options))
