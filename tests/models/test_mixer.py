"""The common form of a mixer, and what all models owe to it."""

import re
import types

import jax
import numpy as np
import pytest

import kernels
from lra import models, tasks
from lra.costs import tables
from lra.errors import UserError
from lra.nn.mixer import HeadMixer
from tests.helpers import documents, mixer_oracle, small

NAMES = models.names()


def _aft():
  """The documents' model of the common form."""
  text = documents.example('lra/models/aft.py')
  module = types.ModuleType('aft')
  exec(text, module.__dict__)
  return module


def _oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  weight = xp.exp(k) * mask[:, :, None, None]
  mean = (weight * v).sum(1, keepdims=True) / weight.sum(1, keepdims=True)
  return mixer_oracle.merge(xp, mean / (1 + xp.exp(-q)), params['out'])


def test_a_mixer_of_ten_lines_equals_its_equation():
  x, mask = mixer_oracle.ragged(21, 9, width=16)
  mixer_oracle.check(_aft().Mixer(num_heads=2, qkv_width=8), _oracle, x, mask)


@pytest.mark.full
def test_a_mixer_of_ten_lines_trains(monkeypatch):
  monkeypatch.setattr(models, 'mixer', lambda name: _aft().Mixer)
  c = small.config('simpletron', 'listops')
  c.model.name = 'aft'
  del c.model.kernel
  program = small.make(c)
  state = program.init()
  before = jax.device_get(state.params)
  state, _ = program.compile_train()(
      state, small.batch(tasks.get('listops'), 4, 24, lead=(1,)),
      program.put_given())
  after = jax.device_get(state.params)
  for name in ('query', 'key', 'value', 'out'):
    old, new = (p['encoder']['block_0']['mixer'][name]['kernel']
                for p in (before, after))
    assert np.isfinite(new).all() and (old != new).any(), name


def _shapes(name, **options):
  mixer = tables.mixer(name, width=16, heads=2, **options)
  x, mask = mixer_oracle.ragged(40, width=16)
  return mixer, mixer_oracle.shapes(mixer, x, mask)


@pytest.mark.every(7)
@pytest.mark.parametrize('name', NAMES)
def test_every_layer_has_a_name_of_its_own(name):
  """Not one that Flax made of a class and a number, such as Dense_0."""
  _, params = _shapes(name)
  for path in jax.tree_util.tree_leaves_with_path(params):
    assert not re.search(r"\['[A-Z][A-Za-z]+_\d+'\]",
                         jax.tree_util.keystr(path[0])), path[0]


@pytest.mark.every(7)
@pytest.mark.parametrize('name', [
    n for n in NAMES if hasattr(models.mixer(n), 'qkv_bias')])
def test_input_projections_without_biases(name):
  with_bias, without = ({
      jax.tree_util.keystr(path)
      for path, _ in jax.tree_util.tree_leaves_with_path(
          _shapes(name, qkv_bias=value)[1])} for value in (True, False))
  gone = with_bias - without
  assert gone and without < with_bias
  assert all('bias' in path and 'out' not in path for path in gone)


@pytest.mark.every(7)
@pytest.mark.parametrize('name', NAMES)
def test_kernels_of_a_model_are_those_of_its_operation(name):
  module = models.module(name)
  mixer, _ = _shapes(name)
  offered = getattr(module, 'KERNELS', ())
  # those without heads are softmax's, or do without attention
  op = getattr(mixer, 'op', 'softmax' if offered else '')
  assert set(offered) == set(kernels.OPS.get(op, ()))
  kernel_for = getattr(mixer, 'kernel_for', lambda *_: 'xla')
  assert kernel_for(40, 16) in (offered or ('xla',))
  assert ('kernel' in mixer.__dataclass_fields__) == bool(offered)


def test_a_kernel_that_does_not_exist_is_refused():
  x, mask = mixer_oracle.ragged(4, width=16)
  for name in ('linear_transformer', 'transformer', 'efficient', 'lightning'):
    mixer = tables.mixer(name, width=16, heads=2, kernel='flash')
    with pytest.raises(UserError, match='config.model.kernel=flash'):
      mixer.init(jax.random.key(0), x, mask, train=False)


def test_heads_that_do_not_divide_are_refused():
  x, mask = mixer_oracle.ragged(4, width=16)
  with pytest.raises(UserError, match='3 heads'):
    HeadMixer(num_heads=3, qkv_width=16).init(
        jax.random.key(0), x, mask, train=False)
