"""Calls a kernel on checked arrays, for linear attention and SimpleTRON."""

import jax.numpy as jnp

from lra.kernels import dispatch
from lra.kernels import sequence as sequence_lib
from lra.kernels.call import attend, masked, with_variable_bias
from lra.kernels.linear import features, xla


def run(op, kernel, options, inputs, segment_ids, num_segments,
        value_width=None, sequence=None):
  """Returns the output, or (output, state) with `options.return_state`.

  Args:
    op: 'linear' or 'simpletron'.
    kernel: a kernel named by the caller, or 'auto'.
    options, inputs: LinearOptions, `lra.kernels.call.Inputs`.
    segment_ids, num_segments: see `lra.kernels.segments.chunks`, or both None.
    value_width: width of v if it is not Dh.
    sequence: `lra.kernels.sequence.Sequence` or None.
  """
  if sequence is not None:
    sequence_lib.check_whole(initial_state=inputs.state,
                             return_state=options.return_state,
                             segment_ids=segment_ids)
    inputs = inputs._replace(state=_elsewhere(inputs, options, sequence))
  needs = {} if value_width is None else {'value_width': value_width}
  name = dispatch.resolve(op, kernel, inputs.shape, inputs.dtype,
                          state=inputs.state is not None
                          or options.return_state,
                          segments=segment_ids is not None, **needs)
  if segment_ids is not None:
    inputs = with_variable_bias(inputs)
    out, state = xla.of_segments(inputs, options, segment_ids, num_segments)
  else:
    out, state = attend('linear', name, options, inputs)
  return (out, state) if options.return_state else out


def _elsewhere(inputs, options, sequence):
  """Returns the initial state of this device's part of a sequence.

  It is the sums over the parts on all other devices.
  """
  _, k, v = masked(with_variable_bias(inputs)).apart()
  phi_k = features.apply(options.feature_map, k).astype(k.dtype)
  if inputs.mask is not None:
    phi_k = jnp.where(inputs.mask[:, :, None, None], phi_k, 0)
  sums = sequence_lib.sums_elsewhere(sequence, phi_k, v)
  return sums if options.normalize else sums[0]
