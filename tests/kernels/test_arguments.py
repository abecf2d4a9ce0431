"""Tests which kernel `auto` chooses, and how bad arguments are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import dispatch
from tests.helpers import errors

OPS = tuple(errors.FUNCTIONS)
X = jnp.ones((2, 8, 2, 32))
# numpy converts: XLA cannot make float16 on CPUs without F16C.
HALF = np.asarray(X).astype('float16')


def _refused(kind, word, op, *args, **options):
  with pytest.raises(kind, match=word):
    errors.FUNCTIONS[op](*args, **options)


@pytest.mark.parametrize('op', OPS)
@pytest.mark.parametrize(
  'word, args',
  [
    ('^q must be a non-empty array', (X[0], X, X)),
    ('^v must be a non-empty array', (X, X, X[:, :, 0])),
    ('^q must be a non-empty array', (X[:, :0], X[:, :0], X[:, :0])),
    ('^k must have the shape of q', (X, X[:, :, :1], X)),
    ('^v must have the shape of q', (X, X, X[:, :7])),
    ('^v must have the dtype of q', (X, X, X.astype(jnp.bfloat16))),
    ('^q must be float32 or bfloat16, got int32', (X.astype(jnp.int32),) * 3),
    ('^k must be float32 or bfloat16, got float64', (X, np.float64(X), X)),
    ('^q must be float32 or bfloat16, got float16', (HALF,) * 3),
  ],
  ids=str,
)
def test_operands(op, word, args):
  _refused(ValueError, word, op, *args)


@pytest.mark.parametrize('op', OPS)
@pytest.mark.parametrize(
  'word, options',
  [
    ('^mask must be bool', {'mask': jnp.ones((2, 7), bool)}),
    ('^mask must be bool', {'mask': jnp.ones((2, 8), jnp.int32)}),
    ('^scale must be a number', {'scale': 'large'}),
    ('^scale must be finite', {'scale': float('nan')}),
    ("^kernel must be 'auto' or one of", {'kernel': 'cuda'}),
  ],
  ids=str,
)
def test_options(op, word, options):
  _refused(ValueError, word, op, X, X, X, **options)


def test_only_xla_takes_values_of_another_width():
  v = X[..., :16]
  assert kernels.linear_attention(X, X, v).shape == v.shape
  with kernels.target('tpu', interpret=True):
    assert kernels.linear_attention(X, X, v).shape == v.shape
    _refused(NotImplementedError, 'features as wide as the values, got 32 and'
             ' 16', 'linear', X, X, v, kernel='pallas_tpu')
  for op in set(OPS) - {'linear'}:
    _refused(ValueError, '^v must have the shape of q', op, X, X, v)


def test_a_traced_scale():
  attend = jax.jit(lambda s: kernels.linear_attention(X, X, X, scale=s))
  with pytest.raises(ValueError, match='^scale must be a number, not a traced'):
    attend(2.0)


def test_an_unknown_option_is_named_and_the_choices_too():
  for op, attend in errors.FUNCTIONS.items():
    name = f'{op}_attention'
    with pytest.raises(TypeError, match=f"^{name} .*'maks': .* mask, "):
      attend(X, X, X, maks=None)
    packed = getattr(kernels, f'{name}_packed')
    with pytest.raises(TypeError, match=f"^{name}_packed .*'maks': .* mask, "):
      packed(jnp.stack([X] * 3, axis=2), maks=None)


def test_a_list_is_a_pair_of_states():
  state = jnp.ones((2, 2, 32, 32)), jnp.ones((2, 2, 32))

  def loss(q, state):
    out, last = kernels.linear_attention(
      q, X, X, initial_state=state, return_state=True
    )
    return out.sum() + sum(x.sum() for x in last)

  got, want = (jax.grad(loss)(X, kind(state)) for kind in (list, tuple))
  np.testing.assert_array_equal(got, want)


def test_options_of_linear():
  _refused(ValueError, '^feature_map', 'linear', X, X, X, feature_map='elu')
  _refused(ValueError, '^eps must be', 'linear', X, X, X, eps=None)


@pytest.mark.parametrize(
  'word, options',
  [
    ('^slopes must have shape', {'slopes': jnp.ones(3)}),
    ('^slopes must be finite and >= 0', {'slopes': jnp.array([0.0, -1.0])}),
    ('^slopes must be finite and >= 0', {'slopes': [0.0, np.nan]}),
    ('^slopes must be real numbers', {'slopes': ['a', 'b']}),
    ('^slopes must be real numbers', {'slopes': np.array([1j, 2])}),
    (r'^slopes must have shape \[H\]', {'slopes': [[1.0], [2.0, 3.0]]}),
    ('^initial_state must be float32', {'initial_state': X}),
    (
      '^initial_state must be float32',
      {'initial_state': jnp.ones((2, 2, 32, 32), jnp.bfloat16)},
    ),
  ],
  ids=str,
)
def test_options_of_lightning(word, options):
  _refused(ValueError, word, 'lightning', X, X, X, **options)


@pytest.mark.every(4)
@pytest.mark.parametrize('steep', (200.0, 1e37, 1e39))
@pytest.mark.parametrize('kernel', ('xla', 'pallas_tpu', 'pallas_triton'))
def test_under_steep_slopes_a_token_sees_itself(kernel, steep):
  """A steep slope times the length stays finite in float32.

  Each output is then (q . k) v of its own token.
  """
  x = jnp.cos(jnp.arange(130 * 16.0)).reshape(1, 130, 1, 16)
  platform = 'gpu' if kernel == 'pallas_triton' else kernel[-3:]
  with kernels.target(platform.replace('xla', 'cpu'), interpret=True):
    out = kernels.lightning_attention(x, x, x, slopes=[steep], kernel=kernel)
  want = (x * x).sum(-1, keepdims=True) * x
  np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('op', OPS)
def test_a_named_kernel_that_cannot_run_says_why(op):
  for name in ('pallas_tpu', 'pallas_gpu'):
    _refused(
      NotImplementedError,
      f"kernel='{name}' needs a .* device",
      op,
      X,
      X,
      X,
      kernel=name,
    )
  odd = jnp.ones((1, 2, 1, 1025))
  with kernels.target('tpu'):
    _refused(
      NotImplementedError,
      rf'^{op}: .* head widths Dh \(last dimension of q, k, v\)',
      op,
      odd,
      odd,
      odd,
      kernel='pallas_tpu',
    )


@pytest.mark.parametrize('op', OPS)
def test_resolve(op):
  shape = (2, 100, 4, 64)
  for name in (None, 'auto', 'xla'):
    assert kernels.resolve(op, name, shape, jnp.bfloat16) == 'xla'
  with kernels.target('tpu'):
    assert kernels.resolve(op, 'auto', shape, jnp.float32) == 'pallas_tpu'
    assert kernels.resolve(op, 'auto', (2, 9, 4, 1025), jnp.float32) == 'xla'
    assert kernels.resolve(op, 'xla', shape, jnp.float32) == 'xla'
    with pytest.raises(NotImplementedError, match='needs a gpu device'):
      kernels.resolve(op, 'pallas_gpu', shape, jnp.bfloat16)
  with pytest.raises(ValueError, match='^op must be one of'):
    kernels.resolve('cubic', 'auto', shape, jnp.float32)


@pytest.mark.parametrize('platform', ('cpu', 'gpu', 'tpu'))
@pytest.mark.parametrize(
  'word, op, shape, dtype, needs',
  [
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
  ],
  ids=str,
)  # fmt: skip
def test_what_no_call_can_be_is_refused(
  platform, word, op, shape, dtype, needs
):
  with kernels.target(platform):
    for kernel in ('auto', kernels.OPS[op][0]):
      with pytest.raises(ValueError, match=word):
        kernels.resolve(op, kernel, shape, dtype, **needs)
    with pytest.raises(ValueError, match=word):
      kernels.explain(op, shape, dtype, **needs)


@pytest.mark.parametrize('op', OPS)
def test_every_kernel_is_asked_for_states(op):
  shape = (2, 100, 4, 64)
  for platform in ('cpu', 'gpu', 'tpu'):
    with kernels.target(platform):
      for state in (False, True):
        name = kernels.resolve(op, 'auto', shape, jnp.bfloat16, state=state)
        assert name.endswith({'cpu': 'xla'}.get(platform, platform))


@pytest.mark.parametrize('op', OPS)
def test_what_does_not_fit_on_chip_is_refused_by_its_width(op):
  """`auto` avoids the TPU kernel if heads, or heads and state, are too wide."""
  with kernels.target('tpu'):
    for heads, width, state, name in (
      (4, 1000, False, 'xla' if op == 'lightning' else 'pallas_tpu'),
      (4, 1000, True, 'xla'),
      (2, 1024, True, 'pallas_tpu'),
    ):
      asked = (2, 1000, heads, width), jnp.bfloat16
      assert kernels.resolve(op, 'auto', *asked, state=state) == name
    big = jnp.zeros((2, 200, 4, 1000), jnp.bfloat16)
    word = f'^{op}: pallas_tpu .* width Dh = 1000 on chip'
    with pytest.raises(NotImplementedError, match=word):
      jax.eval_shape(
        lambda x: errors.FUNCTIONS[op](
          x, x, x, kernel='pallas_tpu', return_state=True
        ),
        big,
      )


def test_auto_runs_what_resolve_says():
  q = jnp.ones((1, 9, 2, 8))
  with kernels.target('tpu', interpret=True):
    program = str(jax.make_jaxpr(kernels.linear_attention)(q, q, q))
    assert 'pallas_call' in program
  assert 'pallas_call' not in str(
    jax.make_jaxpr(lambda *x: kernels.linear_attention(*x))(q, q, q)
  )


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
