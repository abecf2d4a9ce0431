"""Tests that kernel times are read from a device's profiler trace."""

import jax
import pytest

from tools import trace

EVENT = 'events {{ metadata_id: {} offset_ps: {} duration_ps: {} }}'
NAMES = ('gemm', 'sums', 'jit_layer', 'host')


def _plane(name, **lines):
  """Returns a profiler plane as text.

  Args:
    lines: {line name: [(kernel, start in us, length in us)]}.
  """
  parts = [f'planes {{ name: "{name}"']
  for i, kernel in enumerate(NAMES):
    parts.append(f'event_metadata {{ key: {i} value {{ id: {i} '
                 f'name: "{kernel}" }} }}')  # fmt: skip
  for line, events in lines.items():
    parts.append(f'lines {{ name: "{line.replace("_", " ")}" timestamp_ns: 5')
    for kernel, start, length in events:
      parts.append(EVENT.format(
        NAMES.index(kernel), int(start * 1e6), int(length * 1e6)
      ))  # fmt: skip
    parts.append('}')
  return '\n'.join([*parts, '}'])


def _read(*planes, calls=2):
  data = jax.profiler.ProfileData.from_text_proto('\n'.join(planes))
  return trace.of_planes(list(data.planes), calls)


def test_streams_of_a_gpu_by_hand():
  """Reads two calls: gemm 10 us each, 16 us apart; sums (4 us) overlap by 2."""
  found = _read(
    _plane('/host:CPU', python=[('host', 0, 99)]),
    _plane('/device:GPU:0', **{
      'Stream_#1(Compute)': [('gemm', 0, 10), ('gemm', 16, 10)],
      'Stream_#2(Compute)': [('sums', 8, 4), ('sums', 22, 4)],
    }),
  )  # fmt: skip
  assert found['kernels'] == [
    {'name': 'gemm', 'us': pytest.approx(10), 'launches': 1},
    {'name': 'sums', 'us': pytest.approx(4), 'launches': 1},
  ]
  assert found['busy_us'] == pytest.approx((12 + 10) / 2)
  assert found['span_us'] == pytest.approx(26 / 2)


def test_modules_of_a_tpu_are_not_counted_beside_their_operations():
  found = _read(_plane(
    '/device:TPU:0',
    XLA_Modules=[('jit_layer', 0, 20)],
    XLA_Ops=[('gemm', 0, 12), ('sums', 12, 8)],
  ))  # fmt: skip
  assert [k['name'] for k in found['kernels']] == ['gemm', 'sums']
  assert found['busy_us'] == pytest.approx(10)


def test_a_cpu_has_no_kernels():
  run = jax.jit(lambda x: x + 1)
  with pytest.raises(RuntimeError, match='no kernels of a device'):
    trace.by_kernel(run, jax.numpy.ones(3))
