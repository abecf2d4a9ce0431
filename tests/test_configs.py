"""Tests every config on every task that it names.

Configs are found by globbing, so `pytest --full` also tests new models.
"""

import functools
import importlib
import json
import math
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from lra.configs import base, protocols
from lra.core import tasks
from lra.core.errors import UserError
from lra.run import check, loader, optim
from lra.schema import fields, identity
from tests.helpers import small

MODELS = sorted(
    p.stem for p in small.CONFIGS.glob('*.py')
    if p.stem not in ('__init__', 'base'))
TASKS = sorted(tasks.TASKS)
IDENTITIES = json.loads((
    pathlib.Path(__file__).parent / 'identities.json').read_text())
# Configs whose settings differ from those of the first record, and how.
CHANGED = {
    ('retrieval_rfc_mini', 'linear_transformer'): '1000 steps, not 1800',
    ('listops_mini', 'linformer'): '16 landmarks of 32 tokens, not 256',
    ('text_mini', 'linformer'): '16 landmarks, not 256: parameters + 9 %',
    ('listops_mini', 'longformer'): 'a window of 16 of 32 tokens, not 64',
    ('listops_mini', 'performer'): '32 features for 32 tokens, not 256',
    ('listops_mini', 'generative_prf'): '32 features for 32 tokens, not 64',
    ('listops_mini', 'generative_rks'): '32 features for 32 tokens, not 128',
    ('listops_mini', 'gmm_prf'): '32 features for 32 tokens, not 64',
    ('listops_mini', 'reformer'): '4 buckets, by its own rule, not 16',
}
# Tasks that differ from `image` only in their sequence length.
LONG_IMAGES = ('pathfinder64', 'pathx', 'pathx256')


@functools.cache
def _real(model, task, protocol='simpletron'):
  """Returns the config at full size, as a user gets it."""
  return importlib.import_module(f'lra.configs.{model}').get_config(
      f'{task},protocol={protocol}')


def test_every_model_has_a_config_and_every_config_a_model():
  used = {_real(m, 'listops').model.name for m in MODELS}
  assert used == set(models.names())


def _hash(config):
  return identity.config_hash(config.copy_and_resolve_references().to_dict())


@pytest.mark.parametrize('task,model', [
    (task, model) for task, known in IDENTITIES.items() for model in known])
def test_the_settings_of_the_first_records_are_still_the_same(task, model):
  same = _hash(_real(model, task)) == IDENTITIES[task][model]
  assert same != ((task, model) in CHANGED)


@pytest.mark.parametrize('protocol', protocols.PROTOCOLS)
def test_a_protocol_speaks_of_a_group_and_of_declared_fields(protocol):
  settings = protocols.PROTOCOLS[protocol]
  # Each probe has one of these protocols; the others, except for those of BERT,
  # of Keras and of the laptop arena, have all mini tasks.
  of_probes = ('probes', 'state', 'mad', 'zoology')
  group = 'probe' if protocol in of_probes else 'mini'
  known = set(settings).union(*(
      protocols.PROTOCOLS[name] for name in of_probes if group == 'probe'))
  missing = {t.name for t in tasks.TASKS.values()
             if t.group == group} - known
  assert protocol in ('bert', 'keras', 'laptop_1') or not missing, (
      f'Add {min(missing)} to the protocol {protocol} in configs/protocols/.')
  for task in settings:
    assert set(identity.flatten(settings[task])) <= set(fields.FIELDS)
    config = base.get_config(f'{task},protocol={protocol}')
    assert set(fields.FIELDS) == set(identity.flatten(config.to_dict()))
  assert set(protocols.ARGUMENTS[protocol]) >= set(
      protocols.ARGUMENTS['simpletron'])


def test_each_task_has_a_protocol_and_takes_the_first():
  for task in TASKS:
    first = next(p for p in protocols.PROTOCOLS if task in
                 protocols.PROTOCOLS[p])
    assert base.get_config(task).protocol == first
  assert base.get_config('pathx').protocol == 'lra'
  with pytest.raises(UserError, match=(
      'The protocol nystrom has no pathx: choose protocol=lra or protocol=s4')):
    base.get_config('pathx,protocol=nystrom')
  with pytest.raises(UserError, match=(
      r'simpletron has no image: choose protocol=lra or protocol=nystrom or')):
    base.get_config('image,protocol=simpletron')


def test_nystrom_is_what_its_release_does():
  c = base.get_config('retrieval,protocol=nystrom')
  e, t, o = c.encoder, c.train, c.optim
  assert (e.num_layers, e.width, e.mlp_width, c.model.num_heads) == (
      2, 64, 128, 2)
  assert (e.pooling, e.mean_over, e.head, e.head_layers) == (
      'mean', 'tokens', 'nli', 1)
  assert (o.name, o.schedule, t.learning_rate, t.weight_decay, t.eps) == (
      'adamw', 'linear', 1e-4, 0, 1e-6)
  for task, numbers in {'listops': (5000, 1000, 50),
                        'text': (20_000, 8000, 500),
                        'retrieval_rfc': (30_000, 800, 300)}.items():
    t = base.get_config(f'{task},protocol=nystrom').train
    assert (t.steps, t.warmup_steps, t.eval_every) == numbers
  for model, name, value in (('transformer', 'attention_dropout', 0.1),
                             ('transformer', 'qkv_bias', True),
                             ('reformer', 'rounds', 2)):
    assert _real(model, 'text', 'nystrom').model[name] == value


# (layers, width, norm, its place), (batch size, steps, warmup steps),
# (learning rate, weight decay, dropout) and fields of the mixer. They are from
# the tables of the papers and the configs of their code.
RELEASED = {
    ('s4', 'listops'): ((6, 256, 'batch', 'post'), (32, 120_000, 12_000),
                        (0.01, 0.05, 0.0), {'state_dim': 4}),
    ('s4', 'image'): ((6, 512, 'batch', 'post'), (50, 180_000, 18_000),
                      (0.01, 0.05, 0.1), {'state_dim': 64, 'tied': True}),
    ('s4', 'pathx'): ((6, 256, 'batch', 'pre'), (16, 500_000, 50_000),
                      (0.001, 0.05, 0.0), {'dt_min': 1e-4, 'tied': False}),
    ('s5', 'listops'): ((8, 128, 'batch', 'pre'), (50, 76_800, 1920),
                        (0.003, 0.04, 0.0), {'state_dim': 16, 'blocks': 8}),
    ('s5', 'text'): ((6, 256, 'batch', 'pre'), (50, 17_500, 0),
                     (0.004, 0.07, 0.1), {'activation': 'half_glu2'}),
    ('s5', 'pathfinder'): ((6, 192, 'batch', 'pre'), (64, 500_000, 2500),
                           (0.0045, 0.03, 0.05), {'c_init': 'truncated'}),
    ('mega', 'listops'): ((6, 80, 'layer', 'post'), (64, 90_000, 3000),
                          (0.001, 0.01, 0.1), {'v_width': 160}),
    ('mega', 'text'): ((4, 128, 'scale', 'post'), (50, 25_000, 10_000),
                       (0.004, 0.01, 0.1), {'truncation': 1024}),
    ('mega', 'pathx'): ((4, 64, 'batch', 'pre'), (128, 125_000, 25_000),
                        (0.01, 0.01, 0.0), {'attention': 'laplace'}),
}


@pytest.mark.parametrize('protocol, task', RELEASED)
def test_protocols_are_what_their_releases_say(protocol, task):
  model = {'s4': 's4d'}.get(protocol, protocol)
  c = _real(model, task, protocol)
  e, t = c.encoder, c.train
  blocks, times, rates, arguments = RELEASED[protocol, task]
  assert (e.num_layers, e.width, e.norm, e.norm_place) == blocks
  assert (t.batch_size, t.steps, t.warmup_steps) == times
  assert (t.learning_rate, t.weight_decay, e.dropout) == rates
  assert arguments.items() <= c.model.to_dict().items()
  check.check(c)


def test_metala_is_causal_on_two_tasks():
  for task, direction in (('listops', 'causal'), ('text', 'causal'),
                          ('retrieval', 'bidirectional'),
                          ('pathx', 'bidirectional')):
    assert _real('s4d', task, 'metala').model.direction == direction


@pytest.mark.parametrize('protocol, task, model, slow', [
    ('s4', 'listops', 's4d', {'log_decay', 'frequency', 'b'}),
    ('s4', 'image', 's4d', {'log_decay', 'frequency', 'log_step', 'b'}),
    ('s5', 'listops', 's5', {'lambda_real', 'lambda_imaginary', 'log_step'}),
    ('s5', 'text', 'lru', {'log_nu', 'log_theta', 'log_gamma', 'b'}),
    ('s5', 'text', 'transformer', set()), ('mega', 'text', 's4d', set())])
def test_parameters_that_a_protocol_trains_slowly(protocol, task, model, slow):
  c = _real(model, task, protocol)
  check.check(c)
  groups = optim.groups_of(c)
  names = {name for name in getattr(models.module(model), 'PARAM_GROUPS', ())
           if groups and re.fullmatch(
               groups[0][0], f'encoder/block_0/mixer/{name}')}
  assert names == slow
  assert not groups or groups[0][1] == {
      'learning_rate': c.train.ssm_learning_rate, 'weight_decay': 0.0}


@pytest.mark.every(28)
@pytest.mark.parametrize('model', MODELS)
def test_derived_values_follow_the_width(model):
  c = _fresh(model, 'listops_mini')
  head = c.model.get('qkv_width', 64) // c.model.get('num_heads', 1)
  c.encoder.width = 128
  c = c.copy_and_resolve_references()
  assert c.encoder.embedding_std == 128 ** -0.5
  assert c.model.get('qkv_width', 128) == 128
  if 'sort_width' in c.model:
    assert c.model.sort_width == 2 * head
  assert jax.tree.leaves(small.make(c).state_shape.params)


def _fresh(model, arg):
  return importlib.import_module(f'lra.configs.{model}').get_config(arg)


def test_derived_values_follow_until_they_are_set():
  c = _fresh('sinkhorn', 'listops')
  c.model.qkv_width, c.encoder.embedding_std = 256, 0.5
  c.encoder.width = 1024
  assert (c.encoder.width, c.model.qkv_width, c.model.sort_width) == (
      1024, 256, 32)
  assert c.encoder.embedding_std == 0.5
  c = _fresh('reformer', 'text')
  assert c.model.num_buckets == 2 * math.ceil(4000 / 64)
  c.seq_len = 100
  assert c.model.num_buckets == 4
  c.model.chunk_size = 10
  assert c.model.num_buckets == 20


@pytest.mark.parametrize('model', MODELS)
def test_no_budget_is_larger_than_the_shortest_task(model):
  c = _fresh(model, 'listops_mini').model
  for name in ('num_features', 'num_landmarks', 'window', 'block_size',
               'chunk_size', 'num_buckets'):
    assert c.get(name, 1) <= tasks.get('listops_mini').seq_len, name


OWN = """
import flax.linen as nn
import jax.numpy as jnp


class Mixer(nn.Module):
  size: int | None = None
  sizes: tuple = (1, 2)
  qkv_bias: bool = False
  init: callable = nn.initializers.zeros
  dtype: jnp.dtype = jnp.float32
  layer: int = 0
"""


@pytest.mark.parametrize('change, made', [
    ((), (None, (1, 2), True)), (('size=3', 'sizes=(5,)'), (3, (5,), True)),
    (('qkv_bias=False',), (None, (1, 2), False))])
def test_a_config_has_the_arguments_of_a_users_mixer(
    change, made, tmp_path, monkeypatch):
  monkeypatch.setattr(models, 'FOLDER', tmp_path)
  monkeypatch.setattr(models, '__path__', [str(tmp_path)])
  (tmp_path / 'own.py').write_text(OWN)
  file = tmp_path / 'config.py'
  file.write_text("from configs import base\n\n\ndef get_config(arg=''):\n"
                  "  return base.get_config(arg, 'own')\n")
  config = loader.made_by([f'--config={file}:listops_mini', *(
      f'--config.model.{each}' for each in change)])
  assert config.copy_and_resolve_references().model.to_dict() == {
      'name': 'own', **dict(zip(('size', 'sizes', 'qkv_bias'), made,
                                strict=True))}
  check.check(config)
  sys.modules.pop('lra.models.own', None)


def test_configs_are_imported_without_jax():
  subprocess.run([sys.executable, '-c', (
      'import sys; from configs import base, transformer; '
      'base.settings("listops", "lra"); sys.exit("jax" in sys.modules)')],
                 cwd=small.CONFIGS.parent, check=True)


OTHERS = [name for name in protocols.PROTOCOLS if name != 'simpletron']


@pytest.mark.every(59)
@pytest.mark.parametrize('model, protocol', [
    *((model, 'simpletron') for model in MODELS),
    # Other protocols change only sizes here; every fourth model tests one.
    *(pytest.param(model, OTHERS[i % len(OTHERS)], marks=pytest.mark.full)
      for i, model in enumerate(MODELS[::4])),
    *(pytest.param('transformer', name, marks=pytest.mark.full)
      for name in OTHERS)])
def test_full_size_config_has_a_program_for_every_task(model, protocol):
  """Programs have the full length and width, but at most two blocks."""
  seen = set()
  for task in protocols.PROTOCOLS[protocol]:
    if (tasks.get(task).group == 'mini' and protocol != 'simpletron') or (
        task in LONG_IMAGES and model not in ('simpletron', 'lightning')):
      continue  # mini tasks have the same size under every protocol
    c = _real(model, task, protocol)
    c.encoder.num_layers = min(2, c.encoder.num_layers)
    encoded = str((tasks.get(task).seq_len, c.encoder, c.model))
    if encoded not in seen:
      seen.add(encoded)
      shape = small.make(c).state_shape
      assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shape.params))


@pytest.mark.every(52, 7)
@pytest.mark.parametrize('model, kind, devices', [
    *((model, 'listops', 1 + i // 4 % 2) for i, model in enumerate(MODELS)),
    *(pytest.param(model, 'retrieval', 2, marks=pytest.mark.full)
      for model in ('simpletron', 'transformer'))])
def test_forward_and_backward(model, kind, devices):
  """Two updates in bfloat16 keep all numbers finite.

  Half of the models run on two devices, the others with rematerialisation.
  """
  c = small.config(model, kind, batch_size=4, microbatch_size=2)
  c.encoder.remat, c.dtype, c.seed = devices == 1, 'bfloat16', 1
  p = small.make(c, devices)
  state = p.init()
  first = jax.device_get(state.params)
  batch = jax.device_put(small.batch(p.objective.task, 2, 24, lead=(2,)),
                         p.batch_shardings(micro=True))
  update = p.compile_train()
  with jax.debug_nans(True):
    for _ in range(2):
      state, _ = update(state, batch, p.put_given())
  state = jax.device_get(state)
  assert state.step == 2 and state.sums['weight'] == 8
  # The loss of an untrained model is near that of a uniform guess.
  assert 0.2 < state.sums['loss'] / 8 / np.log(
      p.objective.task.num_classes) < 5
  for path, w in jax.tree_util.tree_leaves_with_path(
      (state.params, state.opt_state)):
    assert np.isfinite(w).all(), path
  moved = jax.tree.map(np.array_equal, first, state.params)
  assert not all(jax.tree.leaves(moved))
