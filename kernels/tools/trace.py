"""Time of each kernel of a program, from a trace of the device."""

import collections
import pathlib
import tempfile

import jax

MOST = 20  # kernels, those that take the longest


def by_kernel(function, *args, calls=3):
  """Traces a call and adds up the time of each kernel.

  Args:
    function, *args: a compiled program and its arrays.
    calls: that are traced, after one that is not.

  Returns:
    See `of_planes`.

  Raises:
    RuntimeError: the trace names no device; of a CPU it never does.
  """
  jax.block_until_ready(function(*args))
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
      for _ in range(calls):
        out = function(*args)
      jax.block_until_ready(out)
    found = list(pathlib.Path(folder).rglob('*.xplane.pb'))
    if len(found) != 1:
      raise RuntimeError(f'the profiler wrote {len(found)} traces, not one')
    planes = list(jax.profiler.ProfileData.from_file(str(found[0])).planes)
    return of_planes(planes, calls)


def of_planes(planes, calls):
  """The kernels in a trace of one device.

  A GPU has a line for each stream, which may overlap; a TPU has several lines
  for the same time, of which 'XLA Ops' has the operations.

  Args:
    planes: of a `jax.profiler.ProfileData`.
    calls: that were traced.

  Returns:
    {'busy_us': microseconds a call in which some kernel ran,
    'span_us': microseconds from the first kernel to the end of the last,
    divided by the calls, 'kernels': the `MOST` kernels that take the longest:
    {'name', 'us', 'launches'}, both of one call}.

  Raises:
    RuntimeError: no device, or no kernel, is in the trace.
  """
  events = [
    event
    for plane in planes
    if plane.name.startswith('/device:')
    for line in plane.lines
    if line.name == 'XLA Ops' or line.name.startswith('Stream #')
    for event in line.events
  ]
  if not events:
    raise RuntimeError('the trace has no kernels of a device')
  times, launches = collections.Counter(), collections.Counter()
  for event in events:
    times[event.name] += event.duration_ns
    launches[event.name] += 1
  spans = sorted((e.start_ns, e.start_ns + e.duration_ns) for e in events)
  first, until, busy = spans[0][0], spans[0][0], 0
  for start, end in spans:
    busy += max(end - max(start, until), 0)
    until = max(until, end)
  scale = 1e-3 / calls
  return {
    'busy_us': busy * scale,
    'span_us': (until - first) * scale,
    'kernels': [
      {'name': name, 'us': time * scale, 'launches': launches[name] / calls}
      for name, time in times.most_common(MOST)
    ],
  }
