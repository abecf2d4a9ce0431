"""Times of queued calls, in interleaved rounds."""

import statistics
import time

import jax
import jax.numpy as jnp

STRETCH = 0.1  # seconds of one timer in a round, unless three calls take more


def queued(function, *args):
  """A timer: calls -> seconds a call, for `function` of arrays of JAX.

  The calls are queued and waited for together, so that what the host does for
  a call hides behind what the device does for the one before it. Times below
  `dispatch()` say how fast the host is.
  """

  def timer(calls):
    jax.block_until_ready(function(*args))
    start = time.perf_counter()
    for _ in range(calls):
      out = function(*args)
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / calls

  return timer


def medians(timers, calls, rounds):
  """name -> median seconds over rounds that take turns between the timers.

  A round has `calls` of a timer, or as many as take `STRETCH` seconds, but
  three at least.
  """
  counts = {}
  for name, timer in timers.items():
    counts[name] = max(3, min(calls, int(STRETCH / timer(2))))
  seconds = {name: [] for name in timers}
  for _ in range(rounds):
    for name, timer in timers.items():
      seconds[name].append(timer(min(calls, counts[name])))
  return {name: statistics.median(times) for name, times in seconds.items()}


def bandwidth(size, calls):
  """Bytes a second of a copy kernel over `size` bytes, read and written."""
  x = jnp.zeros(size // 4, jnp.float32)
  copy = jax.jit(lambda x: x + 1)
  return 2 * size / medians({'copy': queued(copy, x)}, calls, 5)['copy']


def dispatch(calls):
  """Seconds that a call costs the host, measured on a tiny one."""
  x = jnp.zeros(8)
  step = jax.jit(lambda x: x + 1)
  return medians({'tiny': queued(step, x)}, calls, 5)['tiny']
