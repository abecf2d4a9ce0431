"""Compiles in threads, and times queued calls in interleaved rounds."""

import concurrent.futures
import contextvars
import os
import statistics
import time

import jax
import jax.numpy as jnp

STRETCH = 0.1  # seconds per timer and round, unless three calls take more


def queued(function, *args):
  """Returns a timer, calls -> seconds per call, for a function of JAX arrays.

  The calls are queued and awaited together, so the host's work for a call
  overlaps with the device's work for the previous one. Times below the host's
  time for a call measure the host.
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
  """Returns name -> median seconds over rounds in which the timers take turns.

  In a round each timer runs `calls` calls, or as many as fit in `STRETCH`
  seconds, but at least three.
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
  """Returns bytes per second of a copy of `size` bytes, read and written."""
  x = jnp.zeros(size // 4, jnp.float32)
  copy = jax.jit(lambda x: x + 1)
  return 2 * size / medians({'copy': queued(copy, x)}, calls, 5)['copy']


def finished(function, items):
  """Yields (item, result of `function` for it), in the order they finish.

  It uses as many threads as there are cores. Tracing holds Python's lock,
  compilers do not. On two cores, one of them busy with other work, 36 programs
  for an H200 took 0.6 of the time. Each call sees the current context, for
  example `lra.kernels.target`. Exceptions are raised here, and calls that have
  not started are dropped.
  """
  cores = (len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity')
           else os.cpu_count())
  with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    calls = {pool.submit(contextvars.copy_context().run, function, item): item
             for item in items}
    try:
      for call in concurrent.futures.as_completed(calls):
        yield calls[call], call.result()
    finally:
      pool.shutdown(cancel_futures=True)
