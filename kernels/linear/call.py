"""From checked arrays to the kernel: what linear and SimpleTRON share."""

from kernels import dispatch, vjp
from kernels.inputs import with_variable_bias
from kernels.linear import segments


def run(
  op, kernel, options, inputs, segment_ids, num_segments, value_width=None
):
  """The output, or with `options.return_state` a pair of it and the state.

  Args:
    op: 'linear' or 'simpletron'.
    kernel: as the caller named it, or 'auto'.
    options: LinearOptions.
    inputs: `kernels.inputs.Inputs`.
    segment_ids, num_segments: see `kernels.segments.chunks`, or both None.
    value_width: of v, where it is not Dh.
  """
  needs = {} if value_width is None else {'value_width': value_width}
  name = dispatch.resolve(
    op,
    kernel,
    inputs.shape,
    inputs.dtype,
    state=inputs.state is not None or options.return_state,
    segments=segment_ids is not None,
    **needs,
  )
  if segment_ids is not None:
    inputs = with_variable_bias(inputs)
    out, state = segments.attend(inputs, options, segment_ids, num_segments)
  else:
    out, state = vjp.attend('linear', name, options, inputs)
  return (out, state) if options.return_state else out
