"""Starts runs from a BERT, and compares its logits with float64."""

import dataclasses
import json
import re
import shutil

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors

import lra
from lra import data_prep
from lra.core.errors import UserError
from lra.data_prep import zhang
from lra.run import bert, program, train, warm_start
from lra.run.experiment import resolve
from lra.schema import identity
from tests.helpers import tiny_bert
from tests.helpers.paths import ROOT

FIXTURE = ROOT / 'tests' / 'fixtures' / 'ag_news'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tiny_bert.write(tmp_path_factory.mktemp('bert') / 'tiny')


def start(config):
  """Returns the program of a config, and the arrays that it starts from."""
  made = program.make(resolve(config), jax.devices()[:1])
  return made, warm_start.read(made.config, made)


def test_logits_equal_float64(folder):
  made, begun = start(tiny_bert.config('transformer', folder))
  assert not begun.fresh and not begun.dropped
  params = {name: value for name, (_, value) in begun.taken.items()}
  state = jax.tree_util.tree_map_with_path(
      lambda path, _: params['/'.join(part.key for part in path)],
      made.state_shape.params)
  ids = tiny_bert.ids()
  got = jax.jit(lambda p, x: made.model.apply({'params': p}, x, train=False))(
      state, ids)
  np.testing.assert_allclose(
      got, tiny_bert.logits(tiny_bert.tensors(), ids), atol=1e-5)


def test_every_tensor_is_accounted_for(folder):
  """SimpleTRON has no output projection; a model for words no classifier."""
  _, begun = start(tiny_bert.config('simpletron', folder))
  assert set(begun.dropped) == {
      f'encoder.layer.{i}.attention.output.dense.{part}'
      for i in range(2) for part in ('weight', 'bias')}
  assert not begun.fresh and len(begun.taken) + 4 == len(tiny_bert.tensors())


def test_older_names_and_a_model_without_a_classifier(folder, tmp_path):
  older = {name.removeprefix('bert.').replace(
      'LayerNorm.weight', 'LayerNorm.gamma').replace(
          'LayerNorm.bias', 'LayerNorm.beta'): value
      for name, value in tiny_bert.tensors().items()
      if 'classifier' not in name and 'pooler' not in name}
  older['cls.predictions.bias'] = np.zeros(64, np.float16)
  other = tiny_bert.write(tmp_path / 'older', older)
  _, begun = start(tiny_bert.config('transformer', other))
  _, whole = start(tiny_bert.config('transformer', folder))
  assert set(begun.fresh) == {
      f'head/{module}/{part}' for module in ('pooler', 'logits')
      for part in ('kernel', 'bias')}
  assert begun.dropped == ('cls.predictions.bias',)
  for name, (_, value) in begun.taken.items():
    np.testing.assert_array_equal(value, whole.taken[name][1])


def test_the_identity_is_that_of_the_content(folder, tmp_path):
  moved = shutil.copytree(folder, tmp_path / 'moved')
  changed = tiny_bert.write(tmp_path / 'changed', tiny_bert.tensors(1))
  words = shutil.copytree(folder, tmp_path / 'words')
  (words / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
  hashes = [identity.config_hash(resolve(tiny_bert.config(
      'transformer', place)).config.to_dict())
            for place in (folder, moved, changed, words)]
  assert hashes[0] == hashes[1] and len(set(hashes)) == 3


def broken(folder, tmp_path, change):
  copy = shutil.copytree(folder, tmp_path / 'broken')
  change(copy)
  return copy


def rewritten(name, value):
  """Returns a function that replaces a tensor of a folder; None removes it."""
  def change(copy):
    found = tiny_bert.tensors()
    del found[name]
    if value is not None:
      found[name] = value
    safetensors.save_file(found, copy / 'model.safetensors')
  return change


def kind(name):
  """Returns a function that writes a tensor of a kind that numpy lacks."""
  def change(copy):
    header = json.dumps({'bert.pooler.dense.bias': {
        'dtype': name, 'shape': [8], 'data_offsets': [0, 8]}}).encode()
    (copy / 'model.safetensors').write_bytes(
        len(header).to_bytes(8, 'little') + header + bytes(8))
  return change


def settings(**changes):
  def change(copy):
    (copy / 'config.json').write_text(json.dumps(tiny_bert.CONFIG | changes))
  return change


QUERY = 'bert.encoder.layer.1.attention.self.query.weight'


@pytest.mark.parametrize('change, culprit', [
    (lambda copy: (copy / 'config.json').unlink(), 'a BERT'),
    (settings(model_type='gpt2'), 'gpt2'),
    (settings(position_embedding_type='relative_key'), 'relative_key'),
    (settings(hidden_act='relu'), 'relu'), (settings(hidden_act=[]), r'\[\]'),
    (settings(hidden_size=64), '--config.encoder.width=64'),
    (settings(hidden_act='gelu_new'), '--config.encoder.gelu=tanh'),
    (lambda copy: (copy / 'model.safetensors').unlink(), 'pytorch_model.bin'),
    (lambda copy: (copy / 'model.safetensors').write_bytes(b'none'),
     'model.safetensors cannot be read'),
    (lambda copy: (copy / 'vocab.txt').unlink(), 'vocab.txt'),
    (rewritten(QUERY, np.zeros((30, 32), np.float32)),
     'encoder.layer.1.attention.self.query.weight of shape'),
    (rewritten('classifier.weight', np.zeros((2, 32), np.float32)),
     'classifier.weight of shape'),
    *((rewritten(QUERY, np.full((32, 32), value)), f'{QUERY[5:]} .*finite')
      for value in (np.nan, np.inf, 1e300, np.complex64(1j))),
    *((kind(name), 'model.safetensors cannot be read .*float32')
      for name in ('F8_E4M3', 'F8_E5M2', 'F4')),
    (rewritten(QUERY, None), 'encoder.layer.1.attention.self.query.weight')])
def test_a_wrong_folder_is_refused(folder, tmp_path, change, culprit):
  with pytest.raises(UserError) as e:
    start(tiny_bert.config(
        'transformer', broken(folder, tmp_path, change)))
  said = str(e.value)
  assert (culprit in said or re.search(culprit, said)) and '\n' not in said


def test_a_vocabulary_must_fit_and_be_named(folder):
  config = tiny_bert.config('transformer', folder)
  config.encoder.vocab_size, config.init_from = 30, ''
  config.tokenizer = str(folder)
  with pytest.raises(UserError, match='vocab_size=30 is too small'):
    resolve(config)
  config.seq_len = 2
  with pytest.raises(UserError, match='seq_len=2 leaves no room'):
    resolve(config)
  config.seq_len = 24
  config.tokenizer, config.encoder.vocab_size = '', 64
  with pytest.raises(UserError, match='needs a tokenizer'):
    train.train(resolve(config))
  config.task = 'listops_mini'
  with pytest.raises(UserError, match='vocab_size=64 means nothing'):
    resolve(config)


@pytest.mark.full
def test_a_file_of_pytorch_gives_the_same(folder, tmp_path):
  torch = pytest.importorskip('torch')
  other = shutil.copytree(folder, tmp_path / 'pytorch')
  (other / 'model.safetensors').unlink()
  torch.save({name: torch.tensor(value) for name, value in
              tiny_bert.tensors().items()}, other / 'pytorch_model.bin')
  want = bert.tensors(folder)
  got = bert.tensors(other)
  assert set(got) == set(want)
  for name, value in want.items():
    np.testing.assert_array_equal(got[name], value)


@pytest.mark.full
def test_the_whole_path(folder, tmp_path, monkeypatch, quick_runs):
  """Prepares, trains from a BERT, and uses the run without the BERT's folder.
  """
  monkeypatch.setitem(zhang.CORPORA, 'ag_news', dataclasses.replace(
      zhang.CORPORA['ag_news'], sizes={'train': 12, 'test': 4}, val=4))
  data_prep.prepare('ag_news', tmp_path / 'data', FIXTURE)
  there = shutil.copytree(folder, tmp_path / 'bert')
  config = tiny_bert.config(
      'simpletron', there, data_dir=str(tmp_path / 'data'))
  config.train.update(steps=5, eval_every=5, warmup_steps=1, batch_size=4,
                      cpu_eval_batch_size=4)
  made = resolve(config, folder=tmp_path / 'run')
  result = train.train(made)
  assert result.status == 'ok' and result.init_sha256
  shutil.rmtree(there)
  trained = lra.load(tmp_path / 'run')
  scores = trained.evaluate('test', same_data=True)
  assert scores['accuracy'] == pytest.approx(result.test.accuracy)
  prediction, = trained.predict(['The bank said it.'])
  assert prediction.name in zhang.CORPORA['ag_news'].classes
  before = {name: value for name, value in tiny_bert.tensors().items()}
  after = warm_start.names_of(jax.device_get(trained.params), {})
  moved = np.abs(after['encoder/block_0/mlp/up/kernel']
                 - before['bert.encoder.layer.0.intermediate.dense.weight'].T)
  assert 0 < moved.max() < 1e-3
