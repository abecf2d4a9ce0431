"""What is refused, in which words, and which kernel is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernels
from kernels import dispatch
from kernels.tools import errors

OPS = tuple(errors.FUNCTIONS)
X = jnp.ones((2, 8, 2, 32))
# By numpy: XLA cannot convert to float16 on processors without F16C.
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


def test_options_of_linear():
  _refused(ValueError, '^feature_map', 'linear', X, X, X, feature_map='elu')
  _refused(ValueError, '^eps must be', 'linear', X, X, X, eps=None)


@pytest.mark.parametrize(
  'word, options',
  [
    ('^slopes must have shape', {'slopes': jnp.ones(3)}),
    ('^slopes must be finite and >= 0', {'slopes': jnp.array([0.0, -1.0])}),
    ('^slopes must be finite and >= 0', {'slopes': [0.0, np.nan]}),
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
  assert not caplog.messages  # of a processor, nothing else is expected
  with kernels.target('gpu'):
    for _ in range(2):
      kernels.resolve('lightning', 'auto', shape, jnp.bfloat16)
      kernels.resolve('lightning', 'xla', shape, jnp.bfloat16)
  (message,) = caplog.messages
  assert message.startswith("lightning runs kernel='xla': ")
  assert '\n' not in message
