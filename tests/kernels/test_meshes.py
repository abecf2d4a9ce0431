"""Compares operations split over several devices with one device."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lra import kernels
from tests.helpers.errors import FUNCTIONS, PACKED, relative_rms
from tests.helpers.gradients import with_cosines, with_gradients

FULL = pytest.mark.full
OPS = tuple(FUNCTIONS)
B, L, H, D = 4, 70, 2, 16
SPLIT, WHOLE = PartitionSpec('data'), PartitionSpec()
MASK = np.random.default_rng(1).random((B, L)) < 0.8
MASK[1, 10:] = False
SLOPES = jnp.array([0.01, 0.4])
KEY = jax.random.key(0)


def mesh(**axes):
  count = int(np.prod(list(axes.values())))
  return jax.make_mesh(tuple(axes.values()), tuple(axes),
                       (AxisType.Auto,) * len(axes),
                       devices=jax.devices()[:count])  # fmt: skip


def _draw(*shapes):
  rng = np.random.default_rng(0)
  return [jnp.asarray(rng.standard_normal(x, np.float32)) for x in shapes]


def _same(got, want, bound=1e-5):
  for x, y in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    assert relative_rms(x, y) < bound


QKV = [(B, L, H, D)] * 3
# name: (function, shapes of operands, name -> shape of arrays with a gradient,
# further options)
BATCH = {
  **{op: (f, QKV, {}, {'mask': MASK}) for op, f in FUNCTIONS.items()},
  'lightning': (kernels.lightning_attention, QKV,
                {'initial_state': (B, H, D, D)},
                {'mask': MASK, 'slopes': SLOPES}),
  'softmax': (kernels.softmax_attention, QKV, {}, {'mask': MASK}),
  'bias': (kernels.softmax_attention, QKV, {'bias': (H, 2 * L - 1)},
           {'mask': MASK}),
  'dropout': (kernels.softmax_attention, QKV, {},
              {'mask': MASK, 'dropout_rate': 0.5, 'dropout_key': KEY}),
  'dense': (kernels.softmax_attention, QKV, {},
            {'dropout_rate': 0.5, 'dropout_key': KEY, 'kernel': 'dense'}),
  'gated': (kernels.gated_linear_attention, QKV, {'log_decay': (B, L, H)}, {}),
  'channels': (kernels.gated_linear_attention, QKV,
               {'log_decay': (B, L, H, D)}, {}),
  'delta': (kernels.delta_rule, QKV, {'beta': (B, L, H)}, {'mask': MASK}),
  'scan': (kernels.linear_scan, [(B, L, D)], {'a': (B, L, D)}, {}),
  'constant': (kernels.linear_scan, [(B, L, D)], {'a': (D,)}, {}),
  'norm_project': (kernels.norm_project, [(B, L, D)],
                   {'weight': (D, 24), 'bias': (24,)}, {}),
}  # fmt: skip
PLATFORMS = {'pallas_tpu': 'tpu', 'splash': 'tpu', 'pallas_triton': 'gpu'}
PALLAS = [('linear', 'pallas_tpu'), ('norm_project', 'pallas_triton'),
          ('softmax', 'splash')]  # fmt: skip
MORE = [('lightning', 'pallas_tpu'), ('linear', 'pallas_triton'),
        ('lightning', 'pallas_triton')]  # fmt: skip


@pytest.mark.parametrize('name, kernel', [
  *((x, None) for x in BATCH), *PALLAS,
  *(pytest.param(*x, marks=FULL) for x in MORE)])  # fmt: skip
def test_a_batch_over_devices(name, kernel):
  """Results and gradients equal those of one device, also without `mesh`."""
  function, shapes, extra, options = BATCH[name]
  operands, others = _draw(*shapes), _draw(*extra.values())
  # Decays must not be positive, nor factors grow.
  others = [-jnp.abs(x) if n == 'log_decay' else jnp.cos(x) if n == 'a' else x
            for n, x in zip(extra, others, strict=True)]  # fmt: skip
  if kernel:
    options = options | {'kernel': kernel}

  def run(function):
    def call(operands, others):
      return function(*operands, **dict(zip(extra, others, strict=True)),
                      **options)

    return with_cosines(call)(operands, others)

  over = mesh(data=2)
  platform = PLATFORMS.get(kernel)
  with (kernels.target(platform, interpret=True) if platform
        else contextlib.nullcontext()):  # fmt: skip
    want, got = run(function), run(kernels.sharded(function, over))
    _same(got, want)
    if name == 'linear':
      with jax.set_mesh(over):
        _same(run(kernels.sharded(function)), want)
  if platform:
    assert got[0].sharding.is_equivalent_to(
      NamedSharding(over, SPLIT), got[0].ndim)


@pytest.mark.every(5)
@pytest.mark.parametrize('batch, axes', [
  (3, {'data': 4}), (4, {'model': 2}), (4, {'sequence': 2}),
  (4, {'model': 2, 'sequence': 2}),
])  # fmt: skip
@pytest.mark.parametrize('name', (*OPS, 'softmax'))
def test_a_call_that_nothing_splits_is_lowered_for_a_tpu(name, batch, axes):
  """The Pallas call runs whole on each device: XLA cannot partition it."""
  x = jax.ShapeDtypeStruct((batch, 40, 2, 64), jnp.bfloat16)
  attend = functools.partial(getattr(kernels, f'{name}_attention'),
                             mask=jnp.ones((batch, 40), bool))  # fmt: skip

  def text(kernel):
    split = kernels.sharded(attend)
    run = jax.jit(lambda x: split(x, x, x, kernel=kernel))
    return run.trace(x).lower(lowering_platforms=('tpu',)).as_text()

  with kernels.target('tpu'), jax.set_mesh(mesh(**axes)):
    assert 'tpu_custom_call' in text('auto')
    plain = text('chunked' if name == 'softmax' else 'xla')
  assert 'tpu_custom_call' not in plain
  assert 'manual_computation' not in plain  # for the compiler to partition


@pytest.mark.every(2)
@pytest.mark.parametrize('axes', (('data', 'model'), ('model', 'other')))
def test_gradients_of_a_call_that_nothing_splits(axes):
  q, k, v = _draw(*[(3, 20, H, D)] * 3)
  attend = functools.partial(
    kernels.sharded(kernels.linear_attention, mesh(**dict.fromkeys(axes, 2))),
    mask=MASK[:3, :20])
  plain = functools.partial(kernels.linear_attention, mask=MASK[:3, :20])
  want = with_cosines(plain)(q, k, v)
  with kernels.target('tpu', interpret=True):
    assert 'shard_map' in str(jax.make_jaxpr(attend)(q, k, v))
    _same(with_cosines(attend)(q, k, v), want)


def test_sharded_without_need_is_plain():
  attend = jax.jit(kernels.linear_attention)
  assert kernels.sharded(attend) is attend
  assert kernels.sharded(attend, mesh(data=1)) is attend
  q, k, v = x = _draw(*QKV)
  four = mesh(data=4)
  odd = [y[:3] for y in x]
  _same(kernels.sharded(attend, four)(*odd), attend(*odd))

  def inside(q, k, v):
    return kernels.sharded(attend)(q, k, v)

  with jax.set_mesh(four):
    got = jax.jit(jax.shard_map(inside, in_specs=SPLIT, out_specs=SPLIT))(*x)
  _same(got, attend(q, k, v))


@pytest.mark.parametrize('op', OPS)
def test_xla_is_partitioned_by_the_compiler(op):
  split = NamedSharding(mesh(data=4), SPLIT)
  x = jax.ShapeDtypeStruct((8, 70, 2, 16), jnp.float32, sharding=split)
  attend = functools.partial(FUNCTIONS[op], kernel='xla')
  step = jax.jit(with_cosines(attend), out_shardings=split)
  program = step.lower(x, x, x).compile().as_text()
  assert 'all-gather' not in program
  assert 'all-reduce' not in program


# Sequences over devices; no mesh divides the length.
SEQUENCE = {'linear': {}, 'simpletron': {},
            'lightning': {'activation': 'silu', 'slopes': SLOPES}}  # fmt: skip


@pytest.mark.every(4)
@pytest.mark.parametrize('kernel, packed, data, sequence', [
  ('xla', False, 1, 4), ('xla', False, 2, 2), ('xla', True, 2, 2),
  pytest.param('pallas_tpu', False, 2, 2, marks=FULL),
  pytest.param('pallas_tpu', True, 1, 4, marks=FULL),
])  # fmt: skip
@pytest.mark.parametrize('op', OPS)
def test_a_sequence_over_devices(op, kernel, packed, data, sequence):
  arrays = _draw((B, L, 3, H, D), (3, H, D)) if packed else _draw(*QKV)
  (do,) = _draw(QKV[0])
  options = {'mask': MASK, 'kernel': kernel, **SEQUENCE[op]}

  def run(over):
    attend = (PACKED if packed else FUNCTIONS)[op]
    attend = kernels.sharded(attend, over) if over else attend

    def call(*arrays):
      if not packed:
        return attend(*arrays, **options)
      qkv, bias = arrays
      return attend(qkv + jax.lax.stop_gradient(bias), bias=bias, **options)

    return with_gradients(call)(do, *arrays)

  with (kernels.target('tpu', interpret=True) if kernel != 'xla'
        else contextlib.nullcontext()):  # fmt: skip
    _same(run(mesh(data=data, sequence=sequence)), run(None))


@pytest.mark.parametrize('op', OPS)
def test_devices_hand_on_states_and_nothing_else(op):
  over = mesh(data=1, sequence=4)
  split = jax.NamedSharding(over, PartitionSpec(None, 'sequence'))
  x = jax.ShapeDtypeStruct((B, 256, H, D), jnp.float32, sharding=split)
  attend = kernels.sharded(FUNCTIONS[op], over)

  def both(*arrays):
    out, pull = jax.vjp(lambda *a: attend(*a, **SEQUENCE[op]), *arrays)
    return out, pull(out)

  text = jax.jit(both).lower(x, x, x).compile().as_text()
  for unwanted in ('all-gather', 'all-to-all'):
    assert unwanted not in text
  # Each pass has one all-reduce, or 1 + log2(4) permutes.
  steps = text.count(' collective-permute(')
  sums = text.count(' all-reduce(')
  assert (sums, steps) == ((0, 6) if op == 'lightning' else (2, 0))


@pytest.mark.parametrize('option', [
  {'return_state': True}, {'initial_state': jnp.zeros((B, H, D, D))},
  {'segment_ids': jnp.zeros((B, L), jnp.int32), 'num_segments': 1}],
  ids=lambda x: min(x))  # fmt: skip
@pytest.mark.parametrize('op', OPS)
def test_only_whole_sequences_have_states_and_segments(op, option):
  attend = kernels.sharded(FUNCTIONS[op], mesh(data=2, sequence=2))
  more = {'normalize': False} if op == 'linear' else {}
  with pytest.raises(NotImplementedError,
                     match='|'.join(option.keys())):  # fmt: skip
    attend(*_draw(*QKV), **option, **more)


@pytest.mark.every(3)
@pytest.mark.parametrize('fsdp', (1, 2, 4))
def test_keys_of_rows_are_those_of_the_whole_batch(fsdp):
  key, split = jax.random.key(3), PartitionSpec(('data', 'fsdp'))
  draw = jax.jit(jax.shard_map(
    lambda x: jax.random.key_data(kernels.row_keys(key, len(x))),
    mesh=mesh(data=4 // fsdp, fsdp=fsdp), in_specs=split,
    out_specs=split))  # fmt: skip
  want = jax.random.key_data(kernels.row_keys(key, 8))
  np.testing.assert_array_equal(draw(jnp.zeros(8)), want)
  assert len({tuple(k) for k in want.tolist()}) == 8


# Operations inside `jax.shard_map` with its check of varying values.


def _keywords(op, *names, **options):
  """Returns `op` as a function of arrays; the last go to keywords `names`."""
  function = getattr(kernels, op)
  count = 1 if 'packed' in op or op in ('norm_project', 'linear_scan') else 3

  def call(*arrays):
    others = dict(zip(names, arrays[count:], strict=True))
    return function(*arrays[:count], **others, **options)

  return call


def _with_a_state(q, k, v, sums, normalizer):
  state = sums, jnp.abs(normalizer) + 1
  return kernels.linear_attention(q, k, v, initial_state=state)


def _in_segments(op, q, k, v):
  ids = jnp.asarray(np.repeat([[0, 1]], L // 2, axis=1))
  ids = jnp.broadcast_to(ids, q.shape[:2]).astype(jnp.int32)
  return FUNCTIONS[op](q, k, v, segment_ids=ids, num_segments=2)


def _masked(kernel, q, k, v):
  mask = jnp.broadcast_to(jnp.arange(L) < 13, k.shape[:2])
  return kernels.softmax_attention(q, k, v, mask=mask, kernel=kernel)


INSIDE = [(QKV[0], SPLIT)] * 3
ONE_PACKED = [((B, L, 3, H, D), SPLIT), ((3, H, D), WHOLE)]
STATE = (B // 2, H, D, D)
HALF = ((B // 2, L, H, D), WHOLE)
# name: (function, [(shape, PartitionSpec) of each argument])
CASES = {
  'linear, state': (
    _with_a_state, [*INSIDE, (STATE, WHOLE), (STATE[:-1], WHOLE)]),
  'lightning, state': (
    _keywords('lightning_attention', 'initial_state'),
    [*INSIDE, (STATE, WHOLE)]),
  'norm_project': (
    _keywords('norm_project', 'weight', 'bias'),
    [((B, L, D), SPLIT), ((D, 6), WHOLE), ((6,), WHOLE)]),
  'delta': (
    _keywords('delta_rule', 'beta'), [*INSIDE, ((B, L, H), SPLIT)]),
  'gated': (
    _keywords('gated_linear_attention', 'log_decay'),
    [*INSIDE, ((B // 2, L, H), WHOLE)]),
  'scan': (
    _keywords('linear_scan', 'a'), [((B, L, D), SPLIT), ((D,), WHOLE)]),
}  # fmt: skip
for _op in OPS:
  CASES |= {
    _op: (_keywords(f'{_op}_attention'), INSIDE),
    f'{_op}, packed': (
      _keywords(f'{_op}_attention_packed', 'bias'), ONE_PACKED),
    f'{_op}, segments': (functools.partial(_in_segments, _op), INSIDE),
  }  # fmt: skip
for _name in ('chunked', 'dense'):
  _attend = functools.partial(_keywords, 'softmax_attention', kernel=_name)
  CASES |= {
    _name: (_attend(), INSIDE),
    f'{_name}, mask': (functools.partial(_masked, _name), INSIDE),
    f'{_name}, dropout': (
      _attend(dropout_rate=0.3, dropout_key=KEY), INSIDE),
    f'{_name}, bias': (_attend('bias'), [*INSIDE, ((H, 2 * L - 1), WHOLE)]),
    f'{_name}, whole keys': (_attend(), [INSIDE[0], HALF, HALF]),
    f'{_name}, whole queries': (_attend(), [HALF, *INSIDE[1:]]),
  }  # fmt: skip


@pytest.mark.every(4)
@pytest.mark.parametrize('name', CASES)
def test_gradients_of_what_is_whole_are_summed(name):
  """On two devices, a replicated argument gets the sum of both gradients."""
  function, arguments = CASES[name]
  args, specs = _draw(*(x for x, _ in arguments)), [x for _, x in arguments]
  args = [0.1 * x if name in ('delta', 'gated', 'scan') else x for x in args]
  if name == 'gated':
    args[-1] = -jnp.abs(args[-1])
  both = with_cosines(function)
  # The mesh has an axis of one device, which changes nothing.
  out, got = jax.jit(jax.shard_map(
    both, mesh=mesh(data=2, fsdp=1), in_specs=tuple(specs),
    out_specs=(SPLIT, tuple(specs))))(*args)  # fmt: skip
  if 'dropout' in name:  # each row has its own key
    _same((out, got), both(*args), 1e-6)
    return
  halves = [[jnp.split(x, 2)[i] if spec == SPLIT else x
             for x, spec in zip(args, specs, strict=True)]
            for i in range(2)]  # fmt: skip
  outs, grads = zip(*(both(*x) for x in halves), strict=True)
  assert relative_rms(out, jnp.concatenate(outs)) < 1e-6
  for x, spec, *parts in zip(got, specs, *grads, strict=True):
    want = jnp.concatenate(parts) if spec == SPLIT else sum(parts)
    assert relative_rms(x, want) < 1e-6
