"""Measures the time of each kernel of a program, from a trace of the device."""

import collections
import pathlib
import tempfile

import jax

MOST = 20  # number of kernels returned: those that take the longest


def by_kernel(function, *args, calls=3):
  """Traces calls of a compiled program after a warm-up; see `of_planes`.

  Raises:
    RuntimeError: the trace contains no device, as always on a CPU.
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
  """Returns the kernels in a trace (`jax.profiler.ProfileData`) of one device.

  A GPU has one line per stream, and they may overlap. A TPU has several lines
  for the same time; 'XLA Ops' has the operations.

  Returns:
    A dict, with times in microseconds per call:
    'busy_us': time in which some kernel ran;
    'span_us': time from the start of the first kernel to the end of the last;
    'kernels': the `MOST` longest kernels as {'name', 'us', 'launches'}.

  Raises:
    RuntimeError: the trace contains no device or no kernel.
  """
  events = [event for plane in planes if plane.name.startswith('/device:')
            for line in plane.lines
            if line.name == 'XLA Ops' or line.name.startswith('Stream #')
            for event in line.events]
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
      'busy_us': busy * scale, 'span_us': (until - first) * scale, 'kernels': [
          {'name': name, 'us': time * scale, 'launches': launches[name] / calls}
          for name, time in times.most_common(MOST)]}
