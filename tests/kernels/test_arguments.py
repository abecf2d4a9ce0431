"""Tests which kernel `auto` chooses, and how bad arguments are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import dispatch
from tests.helpers.errors import FUNCTIONS, PACKED

OPS = tuple(FUNCTIONS)
X = jnp.ones((2, 8, 2, 32))
S = jnp.ones((2, 2, 32, 32))
T = jnp.ones((2, 8, 4))
# numpy converts: XLA cannot make float16 on CPUs without F16C.
HALF = np.asarray(X).astype('float16')
SHORT = X.astype('bfloat16')
IDS = jnp.zeros((2, 8), jnp.int32)
BIAS = jnp.zeros((2, 15))
W, V = jnp.ones((4, 6)), jnp.ones((2, 8, 4, 5))
# op: (function, valid operands, options that it needs)
CALLS = {
  **{op: (f, (X, X, X), {}) for op, f in FUNCTIONS.items()},
  **{f'{op} packed': (f, (jnp.stack([X] * 3, 2),), {})
     for op, f in PACKED.items()},
  'softmax': (kernels.softmax_attention, (X, X, X), {}),
  'gated': (kernels.gated_linear_attention,
            (X[..., :3], X[..., :3], V), {'log_decay': T}),
  'delta': (kernels.delta_rule, (X, X, X), {'beta': X[..., 0]}),
  'general': (kernels.general_delta_rule, (X,) * 5, {}),
  'scan': (kernels.linear_scan, (T,), {'a': T}),
  'norm_project': (kernels.norm_project, (T,),
                   {'weight': W, 'bias': jnp.ones(6)}),
}
# (ops, words of the message, operands in place of the valid ones, options)
BAD = [
  (OPS, '^q must be a non-empty array', (X[0], X, X), {}),
  (OPS, '^v must be a non-empty array', (X, X, X[:, :, 0]), {}),
  (OPS, '^q must be a non-empty array', (X[:, :0],) * 3, {}),
  (OPS, '^k must have the shape of q', (X, X[:, :, :1], X), {}),
  (OPS, '^v must have the shape of q', (X, X, X[:, :7]), {}),
  (OPS, '^v must have the dtype of q', (X, X, SHORT), {}),
  (OPS, '^q must be float32 or bfloat16, got int32', (X.astype('int32'),) * 3,
   {}),
  (OPS, '^k must be float32 or bfloat16, got float64', (X, np.float64(X), X),
   {}),
  (OPS, '^q must be float32 or bfloat16, got float16', (HALF,) * 3, {}),
  (OPS, '^mask must be bool', None, {'mask': jnp.ones((2, 7), bool)}),
  (OPS, '^mask must be bool', None, {'mask': jnp.ones((2, 8), jnp.int32)}),
  (OPS, '^scale must be a number', None, {'scale': 'large'}),
  (OPS, '^scale must be finite', None, {'scale': float('nan')}),
  (OPS, "^kernel must be 'auto' or one of", None, {'kernel': 'cuda'}),
  (OPS[1:], '^v must have the shape of q', (X, X, X[..., :16]), {}),
  (['linear'], '^feature_map', None, {'feature_map': 'elu'}),
  (['linear'], '^eps must be', None, {'eps': None}),
  (['linear'], '^initial_state must be a pair', None, {'initial_state': S}),
  (['linear'], r'^initial_state\[1\] must be float32', None,
   {'initial_state': (S, S)}),
  (['lightning'], '^activation must be one of', None, {'activation': 'gelu'}),
  (['lightning'], '^slopes must have shape', None, {'slopes': jnp.ones(3)}),
  (['lightning'], '^slopes must be finite and >= 0', None,
   {'slopes': jnp.array([0.0, -1.0])}),
  (['lightning'], '^slopes must be finite and >= 0', None,
   {'slopes': [0.0, np.nan]}),
  (['lightning'], '^slopes must be real numbers', None, {'slopes': ['a', 'b']}),
  (['lightning'], '^slopes must be real numbers', None,
   {'slopes': np.array([1j, 2])}),
  (['lightning'], r'^slopes must have shape \[H\]', None,
   {'slopes': [[1.0], [2.0, 3.0]]}),
  (OPS[1:], '^initial_state must be float32', None, {'initial_state': X}),
  (OPS[1:], '^initial_state must be float32', None,
   {'initial_state': S.astype('bfloat16')}),
  ([*OPS, 'scan'], '^segment_ids must be int32', None,
   {'segment_ids': IDS[0]}),
  (OPS, '^segment_ids must be int32', None, {'segment_ids': IDS > 0}),
  (OPS, '^num_segments must be an int', None, {'segment_ids': IDS}),
  (OPS, '^num_segments must be an int', None,
   {'segment_ids': IDS, 'num_segments': 0}),
  ([*OPS, 'scan'], '^num_segments needs', None, {'num_segments': 1}),
  (['linear packed'], '^qkv must be a non-empty array', (X,), {}),
  (['linear packed'], '^bias must be float32', None, {'bias': X[0, :2]}),
  (['softmax'], '^q must be a non-empty array', (X[0], X, X), {}),
  (['softmax'], '^k must be a non-empty array', (X, X[:, :0], X[:, :0]), {}),
  (['softmax'], '^q must be float32 or .*, got int32',
   (X.astype('int32'),) * 3, {}),
  (['softmax'], '^k must have the dtype of q', (X, SHORT, X), {}),
  (['softmax'], '^k must be ', (X, X[..., :9], X), {}),
  (['softmax'], '^k must be ', (X[:, :, :1], X, X), {}),
  (['softmax'], '^v must be .* with the B, S, G of k', (X, X, X[:, :7]), {}),
  (['softmax'], '^v must be .* with the B, S, G of k', (X, X, X[:, :, :1]),
   {}),
  (['softmax'], '^mask must be bool', (X[:, :3], X, X),
   {'mask': X[:, :, 0, 0]}),
  (['softmax'], '^mask must be bool', None, {'mask': jnp.ones((2, 7), bool)}),
  (['softmax'], '^scale must be finite', None, {'scale': np.inf}),
  (['softmax'], '^dropout_rate must be', None, {'dropout_rate': 1.0}),
  (['softmax'], '^dropout_rate must be', None, {'dropout_rate': -0.1}),
  (['softmax'], '^dropout_key must be given', None, {'dropout_rate': 0.1}),
  (['softmax'], r'^bias .*float32 \[H, L \+ S - 1\] = \(2, 15\), got .*14',
   None, {'bias': BIAS[:, 1:]}),
  (['softmax'], r'^bias .*got float32 \(1, 15\)', None, {'bias': BIAS[:1]}),
  (['softmax'], '^bias .*got bfloat16', None,
   {'bias': BIAS.astype('bfloat16')}),
  (['softmax'], '^bias .*as many heads of k as of q, 2, got 1',
   (X, X[:, :, :1], X[:, :, :1]), {'bias': BIAS}),
  (['gated'], '^q must be a non-empty array', (X[0], X, V), {}),
  (['gated'], '^k must have the shape of q', (X, X[:, :, :1], V), {}),
  (['gated'], r'^v must be \[B, L, H, E\]', (X, X, V[:, :, :3]), {}),
  (['gated'], '^v must have the dtype of q', (X, X, V.astype('bfloat16')), {}),
  (['gated'], '^log_decay must be float32', None, {'log_decay': T[..., :2]}),
  (['gated'], '^log_decay must be float32', None,
   {'log_decay': T.astype('bfloat16')}),
  (['delta'], r'^beta must be float32 \[B, L, H\]', None, {'beta': X}),
  (['delta'], r'^log_decay must be float32 \[B, L, H\]', None,
   {'log_decay': X[..., :2]}),
  (['delta'], '^q must be a non-empty array', (X[0], X, X), {}),
  (['delta'], '^k must have the shape of q', (X, X[:, :5], X), {}),
  (['delta'], '^v must have the dtype of q', (X, X, SHORT), {}),
  (['general'], '^b must be float32', (X, X, X, X, X[..., :2]), {}),
  (['scan'], r'^x must be a non-empty array \[B, L, E\]', (T[0],), {}),
  (['scan'], '^x must be float32 or bfloat16 or complex64',
   (T.astype('float16'),), {}),
  (['scan'], '^`a` must have dtype float32', None, {'a': T[0]}),
  (['scan'], '^`a` must have dtype float32', None, {'a': T.astype(complex)}),
  (['scan'], '^`a` must have dtype complex64', (T.astype('complex64'),), {}),
  (['norm_project'], r'^o must be a non-empty .*\[B, L, E\]', (T[0],), {}),
  (['norm_project'], '^o must be float32 or bfloat16',
   (T.astype('float16'),), {}),
  *((['norm_project'], '^weight must be float32', None, {'weight': x})
    for x in (W[:-1], W[0], W.astype('bfloat16'))),
  (['norm_project'], '^bias must be float32', None, {'bias': jnp.ones(5)}),
  (['gated', 'delta', 'scan'], '^mask must be bool', None,
   {'mask': jnp.ones((2, 8))}),
  (['gated', 'delta', 'scan'], '^initial_state must be float32', None,
   {'initial_state': T[:, :3, 0]}),
  (['gated', 'delta'], '^scale must be', None, {'scale': 'large'}),
  (['gated', 'delta', 'scan', 'norm_project'], '^kernel must be', None,
   {'kernel': 'cudnn'}),
]


def test_bad_arguments():
  for ops, word, operands, options in BAD:
    for op in ops:
      function, valid, needed = CALLS[op]
      with pytest.raises(ValueError, match=word):
        function(*(operands or valid), **{**needed, **options})
        pytest.fail(f'{op} accepts {word}')


@pytest.mark.parametrize('op', [*OPS, *(f'{op} packed' for op in OPS)])
def test_an_unknown_option_is_named_and_the_choices_too(op):
  function, operands, _ = CALLS[op]
  name = op.replace(' ', '_attention_') if ' ' in op else f'{op}_attention'
  with pytest.raises(TypeError, match=f"^{name} .*'maks': .* mask, "):
    function(*operands, maks=None)


def test_a_traced_scale():
  attend = jax.jit(lambda s: kernels.linear_attention(X, X, X, scale=s))
  with pytest.raises(ValueError, match='^scale must be a number, not a traced'):
    attend(2.0)


def test_only_xla_takes_values_of_another_width():
  v = X[..., :16]
  assert kernels.linear_attention(X, X, v).shape == v.shape
  with kernels.target('tpu', interpret=True):
    assert kernels.linear_attention(X, X, v).shape == v.shape
    word = 'features as wide as the values, got 32 and 16'
    with pytest.raises(NotImplementedError, match=word):
      kernels.linear_attention(X, X, v, kernel='pallas_tpu')


def test_only_xla_takes_segments():
  options = {'segment_ids': IDS, 'num_segments': 1}
  with kernels.target('tpu', interpret=True):
    with pytest.raises(NotImplementedError, match='takes no segment_ids'):
      kernels.linear_attention(X, X, X, kernel='pallas_tpu', **options)
    out = jax.jit(lambda x: kernels.linear_attention(x, x, x, **options))(X)
  np.testing.assert_allclose(out, kernels.linear_attention(X, X, X), rtol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize('steep', (200.0, 1e37, 1e39))
@pytest.mark.parametrize('kernel', ('xla', 'pallas_tpu', 'pallas_triton'))
def test_under_steep_slopes_a_token_sees_itself(kernel, steep):
  """A steep slope times the length stays finite in float32.

  Each output is then (q . k) v of its own token.
  """
  x = jnp.cos(jnp.arange(130 * 16.0)).reshape(1, 130, 1, 16)
  platform = {'xla': 'cpu', 'pallas_tpu': 'tpu'}.get(kernel, 'gpu')
  with kernels.target(platform, interpret=True):
    out = kernels.lightning_attention(x, x, x, slopes=[steep], kernel=kernel)
  want = (x * x).sum(-1, keepdims=True) * x
  np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


SHAPE = (2, 100, 4, 64)
LINEAR = 'pallas_triton', 'pallas_gpu'
# (ops, platform, shape, dtype, needs, kernel that auto takes)
AUTO = [
  *((OPS, 'cpu', SHAPE, 'bfloat16', {'state': x}, 'xla') for x in (0, 1)),
  *((OPS, 'gpu', SHAPE, 'bfloat16', {'state': x}, 'pallas_gpu')
    for x in (0, 1)),
  *((OPS, 'tpu', SHAPE, x, {'state': y}, 'pallas_tpu')
    for x in ('bfloat16', 'float32') for y in (0, 1)),
  (OPS, 'tpu', (2, 9, 4, 1025), 'float32', {}, 'xla'),
  (OPS, 'gpu', SHAPE, 'float32', {}, 'pallas_triton'),
  (OPS, 'gpu', (1, 100, 2, 40), 'bfloat16', {}, 'pallas_triton'),
  (OPS, 'gpu', (1, 100, 2, 512), 'bfloat16', {}, 'xla'),
  (OPS, 'gpu', SHAPE, 'bfloat16', {'segments': True}, 'xla'),
  # Heads, or heads and their state, may be too wide for a TPU.
  (['linear', 'simpletron'], 'tpu', (2, 1000, 4, 1000), 'bfloat16', {},
   'pallas_tpu'),
  (['lightning'], 'tpu', (2, 1000, 4, 1000), 'bfloat16', {}, 'xla'),
  (OPS, 'tpu', (2, 1000, 4, 1000), 'bfloat16', {'state': True}, 'xla'),
  (OPS, 'tpu', (2, 1000, 2, 1024), 'bfloat16', {'state': True}, 'pallas_tpu'),
  *((['softmax'], x, SHAPE, 'bfloat16', y, 'chunked')
    for x in ('cpu', 'gpu', 'tpu')
    for y in ({'dropout_rate': 0.1}, {'bias': True})),
  *((['softmax'], 'cpu', SHAPE, x, {}, 'chunked')
    for x in ('bfloat16', 'float32')),
  *((['softmax'], 'tpu', (2, 40, 2, x), y, z, kernel) for x, y, z, kernel in (
    (64, 'bfloat16', {}, 'splash'), (512, 'float32', {}, 'splash'),
    (64, 'float16', {}, 'chunked'), (513, 'bfloat16', {}, 'chunked'),
    (64, 'bfloat16', {'value_width': 513}, 'chunked'))),
]
# (op, kernel, platform, shape, dtype, needs, words of the reason)
REFUSED = [
  *((op, kernel, 'cpu', SHAPE, 'bfloat16', {}, f"^{op}: kernel='{kernel}' "
     'needs a .* device') for op in OPS
    for kernel in ('pallas_tpu', 'pallas_gpu', 'pallas_triton')),
  *((op, 'pallas_gpu', 'tpu', SHAPE, 'bfloat16', {}, 'needs a gpu device')
    for op in OPS),
  *((op, 'pallas_tpu', 'tpu', (1, 2, 1, 1025), 'float32', {},
     rf'^{op}: .* head widths Dh \(last dimension of q, k, v\)')
    for op in OPS),
  *((op, 'pallas_tpu', 'tpu', (2, 200, 4, 1000), 'bfloat16', {'state': True},
     f'^{op}: pallas_tpu .* width Dh = 1000 on chip') for op in OPS),
  *((op, 'pallas_gpu', 'gpu', (1, 100, 2, 32), 'bfloat16', {}, 'Dh .* got 32')
    for op in OPS),
  *((op, 'pallas_gpu', 'gpu', SHAPE, 'float32', {}, 'q, k, v, got float32')
    for op in OPS),
  *((op, 'pallas_triton', 'gpu', (1, 100, 2, x), 'bfloat16', {},
     f'Dh .* got {x}') for op in OPS for x in (8, 257)),
  ('softmax', 'cudnn', 'gpu', SHAPE, 'float32', {'dropout_rate': 0.1},
   'rate of 0'),
  ('softmax', 'splash', 'tpu', SHAPE, 'float32', {'dropout_rate': 0.1},
   'rate of 0'),
  ('softmax', 'cudnn', 'gpu', SHAPE, 'bfloat16', {'bias': True},
   'no bias of distances'),
  ('softmax', 'splash', 'tpu', SHAPE, 'bfloat16', {'bias': True},
   'no bias of distances'),
  ('softmax', 'cudnn', 'gpu', SHAPE, 'float32', {}, '16-bit dtype, not float'),
  ('softmax', 'cudnn', 'cpu', SHAPE, 'float32', {}, 'needs a gpu device'),
  ('softmax', 'splash', 'gpu', SHAPE, 'float32', {}, 'needs a tpu device'),
  ('softmax', 'splash', 'tpu', (2, 40, 2, 513), 'bfloat16', {},
   'up to 512 wide, got 513'),
  ('norm_project', 'pallas_triton', 'cpu', SHAPE[:3], 'float32', {},
   'needs a gpu device'),
]
# (words, op, shape, dtype, needs) that no kernel takes on any platform
IMPOSSIBLE = [
  ('^dtype must be float32 or b', 'linear', X.shape, 'float64', {}),
  ('^dtype must be float32 or b', 'lightning', X.shape, 'float16', {}),
  ('^dtype must be .* or float16', 'softmax', X.shape, 'int32', {}),
  ("^dtype must be .*, got 'half a", 'linear', X.shape, 'half a', {}),
  (r'^shape must be \(B, L, H, Dh\)', 'linear', (8, 64), 'float32', {}),
  (r'^shape must be \(B, L, H, Dh\)', 'softmax', 8, 'float32', {}),
  ('^shape must be .* above 0', 'lightning', (1, 0, 2, 8), 'float32', {}),
  (r'^shape must be \(B, L, E\)', 'norm_project', X.shape, 'float32', {}),
  ("need 'bias': it has value", 'linear', X.shape, 'float32', {'bias': 1}),
  ("'value_width': it has state", 'lightning', X.shape, 'float32',
   {'value_width': 32}),
  ("'state': it has none", 'norm_project', X.shape[:3], 'float32',
   {'state': True}),
]


def test_auto():
  for ops, platform, shape, dtype, needs, want in AUTO:
    with kernels.target(platform):
      for op in ops:
        for name in (None, 'auto'):
          found = kernels.resolve(op, name, shape, dtype, **needs)
          assert found == want, (op, platform, shape, dtype, needs)
        first = kernels.OPS[op][0]
        assert kernels.resolve(op, first, shape, dtype, **needs) == first


def test_a_named_kernel_that_cannot_run_says_why():
  for op, kernel, platform, shape, dtype, needs, word in REFUSED:
    with kernels.target(platform):
      with pytest.raises(NotImplementedError, match=word):
        kernels.resolve(op, kernel, shape, dtype, **needs)
      if op in CALLS and not needs and len(shape) == 4:
        x = jax.ShapeDtypeStruct(shape, dtype)
        with pytest.raises(NotImplementedError, match=word):
          jax.eval_shape(
            lambda x: CALLS[op][0](x, x, x, kernel=kernel), x)  # noqa: B023


@pytest.mark.parametrize('op, kernel', [
  *((op, kernel) for op in OPS for kernel in LINEAR),
  ('norm_project', 'pallas_triton')])
def test_an_old_or_absent_device_is_refused(op, kernel):
  supported = dispatch.backend(op, kernel).supported
  with kernels.target('gpu'):
    supported(SHAPE, jnp.bfloat16)
  with pytest.raises(NotImplementedError, match='compute capability'):
    supported(SHAPE, jnp.bfloat16)


def test_older_devices_are_refused(monkeypatch):
  triton = pytest.importorskip('lra.kernels.triton')
  for capability, good in (('7.5', False), ('8.0', True), ('12.0', True)):
    device = type('Gpu', (), {'compute_capability': capability})()
    monkeypatch.setattr(triton, '_local_gpu', lambda d=device: d)
    if good:
      triton._check_device()
    else:
      with pytest.raises(NotImplementedError, match='8.0 or above, got 7.5'):
        triton._check_device()


@pytest.mark.parametrize('platform', ('cpu', 'gpu', 'tpu'))
def test_an_impossible_call_is_refused(platform):
  with kernels.target(platform):
    for word, op, shape, dtype, needs in IMPOSSIBLE:
      for kernel in ('auto', kernels.OPS[op][0]):
        with pytest.raises(ValueError, match=word):
          kernels.resolve(op, kernel, shape, dtype, **needs)
      with pytest.raises(ValueError, match=word):
        kernels.explain(op, shape, dtype, **needs)
    for kernel in ('cubic', 'flash'):
      op = 'cubic' if kernel == 'cubic' else 'softmax'
      word = '^op must be one of' if op == kernel else "^kernel must be 'auto'"
      with pytest.raises(ValueError, match=word):
        kernels.resolve(op, kernel, X.shape, 'float32')


def test_auto_runs_what_resolve_says():
  q = jnp.ones((1, 9, 2, 8))
  with kernels.target('tpu', interpret=True):
    program = str(jax.make_jaxpr(kernels.linear_attention)(q, q, q))
    assert 'pallas_call' in program
  assert 'pallas_call' not in str(
    jax.make_jaxpr(lambda *x: kernels.linear_attention(*x))(q, q, q))


def test_a_backend_that_cannot_be_imported_is_not_implemented(monkeypatch):
  def broken(name):
    raise ImportError(f'no {name}')

  monkeypatch.setattr(dispatch.importlib, 'import_module', broken)
  with kernels.target('tpu'):
    reason = "linear: kernel='pallas_tpu' is not available"
    with pytest.raises(NotImplementedError, match=reason):
      kernels.resolve('linear', 'pallas_tpu', X.shape, X.dtype)
    assert kernels.resolve('linear', None, X.shape, X.dtype) == 'xla'


def test_an_unknown_target():
  with pytest.raises(ValueError, match='^platform must be'):
    with kernels.target('npu'):
      pass


def test_explain_says_why_each_kernel_cannot_run():
  with kernels.target('gpu'):
    reasons = kernels.explain('linear', (1, 8, 2, 7), jnp.bfloat16)
  assert list(reasons) == list(reversed(kernels.OPS['linear']))
  assert 'Dh' in reasons['pallas_gpu']
  assert 'needs a tpu device' in reasons['pallas_tpu']
  assert reasons['xla'] == ''
  with pytest.raises(ValueError, match="got 'no'"):
    kernels.explain('no', (1, 8, 2, 7), jnp.bfloat16)


def test_a_fallback_on_an_accelerator_is_said_once(caplog):
  dispatch._warn_once.cache_clear()
  shape = (1, 8, 2, 7)
  assert kernels.resolve('lightning', 'auto', shape, jnp.bfloat16) == 'xla'
  assert not caplog.messages  # a CPU has no faster kernel to warn about
  with kernels.target('gpu'):
    for _ in range(2):
      kernels.resolve('lightning', 'auto', shape, jnp.bfloat16)
      kernels.resolve('lightning', 'xla', shape, jnp.bfloat16)
  (message,) = caplog.messages
  assert message.startswith("lightning runs kernel='xla': ")
  assert '\n' not in message
