"""A run that was exported, moved and loaded is the run.

The hub is a local server in the tests of downloads. Uploads call the library's
functions with their network parts replaced: nothing leaves this machine.
"""

import contextlib
import importlib.util
import json
import pathlib
import shlex
import shutil

import huggingface_hub
import jax
import numpy as np
import pytest
from huggingface_hub import constants
from safetensors import numpy as safetensors
from safetensors import safe_open

import lra
from lra import models
from lra.cli import export
from lra.core import files
from lra.core.errors import UserError
from lra.data import prepared, wordpiece
from lra.data_prep import encode
from lra.run import loader, train, weights
from lra.run.counters import scored_of
from lra.schema import identity, result
from lra.share import hub, stablehlo
from tests.helpers import damage, documents, small, tiny_bert
from tests.helpers import hub as hub_server

pytestmark = pytest.mark.usefixtures('quick_runs')


@pytest.fixture(scope='module')
def exported(mini_data, tmp_path_factory):
  """Trains a model with constants and exports it; deletes the run.

  Returns (the folder, moved; parameters and constants of the run; its result).
  """
  c = small.config('performer', 'listops_mini', steps=3, eval_every=1,
                   learning_rate=0.1, warmup_steps=1, batch_size=32,
                   microbatch_size=32, eval_batch_size=50)
  c.data_dir, c.seq_len, c.encoder.pooling = str(mini_data), 0, 'mean'
  place = tmp_path_factory.mktemp('export')
  run = place / 'run'
  train.train(small.experiment(c, run))
  trained, recorded = lra.load(run), result.read(run / 'result.json')
  said = export.export(place / 'new' / 'folder', run)
  assert f'step {trained.step}' in said and 'one example' not in said
  (place / 'new' / 'folder').rename(place / 'moved')
  shutil.rmtree(run)
  return (place / 'moved', jax.device_get((trained.params, trained.constants)),
          recorded)


@pytest.fixture
def copy(exported, tmp_path):
  shutil.copytree(exported[0], tmp_path / 'copy')
  return tmp_path / 'copy'


@pytest.fixture
def no_forward(monkeypatch):
  """Leaves out the forward function, whose compilation takes a second."""
  monkeypatch.setattr(stablehlo, 'forward', lambda *_: (b'', True))


def test_it_is_the_run_bit_for_bit(exported, mini_data):
  folder, want, recorded = exported
  model = lra.load(folder)
  got = jax.device_get((model.params, model.constants))
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(x, y)
  scores = model.evaluate('test', mini_data)
  assert scores['loss'] == recorded.test.loss
  assert scores['confusion'] == recorded.test.confusion
  assert model.step == recorded.best_step
  assert model.data == (recorded.data_fingerprint, recorded.data_origin)
  for path in folder.iterdir():
    assert str(mini_data).encode() not in path.read_bytes(), path


def test_its_forward_function_needs_no_code_of_ours(exported, mini_data):
  folder = exported[0]
  forward = jax.export.deserialize(
      bytearray((folder / stablehlo.NAME).read_bytes()))
  assert set(forward.platforms) == {'cpu', 'cuda', 'tpu'}
  arrays = safetensors.load_file(folder / weights.NAME)
  model, split = lra.load(folder), prepared.load(
      'listops_mini', mini_data).splits['test']
  tokens = model.program.objective.batch(
      split, np.arange(7), seed=0, step=0)['tokens']
  want = jax.jit(lambda tokens: model.program.model.apply(
      {'params': model.params, **model.constants}, tokens, train=False))(tokens)
  for count in (7, 2):
    np.testing.assert_allclose(
        forward.call(arrays, tokens[:count]), want[:count], rtol=1e-5,
        atol=1e-5)


@pytest.mark.parametrize('wrong', [16, 300, -1])
def test_an_id_that_the_model_has_not_gives_nan_alone(exported, wrong):
  folder = exported[0]
  forward = jax.export.deserialize(
      bytearray((folder / stablehlo.NAME).read_bytes()))
  tokens = np.ones((2, 32), np.int16)
  tokens[0, 3] = wrong
  found = forward.call(safetensors.load_file(folder / weights.NAME), tokens)
  assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def test_the_folder_says_how_an_example_becomes_ids(exported):
  about = json.loads((exported[0] / 'task.json').read_text())
  codes = about['ids'].partition(' in ')[2].split()
  model = lra.load(exported[0])
  text = '[MED 4 8 ]'
  split = encode.split(model.program.objective.task, [text])
  want = model.program.objective.batch(
      split, np.arange(1), seed=0, step=-1)['tokens'][0]
  ids = [1 + codes.index(token) for token in text.split()]
  assert want.tolist() == ids + [0] * (about['seq_len'] - len(ids))
  assert about['classes'] == list(map(str, range(10)))
  assert about['ids'] in (exported[0] / 'README.md').read_text().replace(
      '\\', '')


def test_the_example_of_the_documents_runs(exported, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  pathlib.Path('my_model').symlink_to(exported[0])
  found = {}
  exec(documents.example('stablehlo'), found)
  assert found['logits'].shape == (3, 10)


@pytest.mark.full
@pytest.mark.parametrize('name', models.names())
def test_every_model_has_a_forward_function(name):
  program = small.make(small.config(name, 'listops_mini'))
  state = jax.tree.map(np.asarray, scored_of(program.init()))
  forward, any_batch = stablehlo.forward(program, state)
  assert any_batch
  tokens = small.batch(program.objective.task, 3, 24)['tokens']
  want = np.concatenate([jax.jit(lambda tokens: program.model.apply(
      {'params': state['params'], **state['constants']}, tokens, train=False))(
          tokens[i:i + 1]) for i in range(3)])
  got = jax.export.deserialize(bytearray(forward)).call(
      dict(zip(weights.names(state), jax.tree.leaves(state), strict=True)),
      tokens)
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_the_card_is_one_of_the_hub(exported):
  folder, _, recorded = exported
  card = huggingface_hub.ModelCard.load(folder / 'README.md')
  score, = card.data.eval_results
  assert score.metric_value == recorded.test.accuracy
  assert score.metric_type == 'accuracy'
  assert score.dataset_type == 'listops_mini'
  assert card.data.license == 'apache-2.0'
  assert 'performer' in card.data.tags
  assert (recorded.git_commit or 'unknown') in card.text
  for name, accuracy in recorded.baselines.items():
    assert f'{name} | {100 * accuracy:.2f}%' in card.text


def test_the_command_on_the_card_makes_the_run(exported):
  folder, _, recorded = exported
  line, = (line for line in (folder / 'README.md').read_text().splitlines()
           if line.startswith('python run_lra.py'))
  config = loader.made_by(shlex.split(line)[2:])
  made = json.loads(json.dumps(
      config.copy_and_resolve_references().to_dict()))
  assert identity.run_name(made) == identity.run_name(recorded.config)


@pytest.mark.parametrize('name', ['hf:somebody/a-model', 'somebody/a-model'])
def test_it_is_loaded_from_a_hub(exported, tmp_path, monkeypatch, name):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
  with hub_of(exported[0], monkeypatch):
    model = lra.load(name)
    for x, y in zip(jax.tree.leaves(model.params),
                    jax.tree.leaves(exported[1][0]), strict=True):
      np.testing.assert_array_equal(x, y)
    with pytest.raises(UserError, match='hf:somebody/another is no folder'):
      lra.load('hf:somebody/another')


@contextlib.contextmanager
def hub_of(folder, monkeypatch):
  """Serves `folder` as somebody/a-model; the library asks that server."""
  with hub_server.serving(folder, 'somebody/a-model') as address:
    monkeypatch.setattr(constants, 'ENDPOINT', address)
    monkeypatch.setattr(
        constants, 'HUGGINGFACE_CO_URL_TEMPLATE',
        address + '/{repo_id}/resolve/{revision}/{filename}')
    yield


def test_a_hub_gives_the_vocabulary_too(copy, tmp_path, monkeypatch):
  (copy / 'vocab.txt').write_text(''.join(f'{p}\n' for p in tiny_bert.PIECES))
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
  with hub_of(copy, monkeypatch):
    folder = hub.place('hf:somebody/a-model')
  assert wordpiece.read(folder).pieces == tiny_bert.PIECES


def test_a_name_of_a_path_is_no_name_of_the_hub(tmp_path, monkeypatch):
  monkeypatch.setattr(huggingface_hub, 'snapshot_download', lambda *_, **__: (
      pytest.fail('the hub was asked')))
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'runs').mkdir()
  for name in ('runs/missing', 'a/b/c', '/a/b', './b', 'b'):
    assert hub.place(name) == pathlib.Path(name)
  for name, words in (('hf:a', 'like hf:USER/NAME'), ('hf://a/b', 'a URL')):
    with pytest.raises(UserError, match=words):
      hub.place(name)


@pytest.mark.parametrize('spoil, words', [
    (lambda path: damage.flip_a_bit(path, path.stat().st_size - 5),
     'is damaged .its checksum is wrong'),
    (lambda path: path.write_bytes(path.read_bytes()[:-5]), 'is damaged'),
    (lambda path: path.write_bytes(safetensors.save(
        {'weight': np.ones(3, np.float32)})), 'was not written by `export`'),
    (lambda path: path.write_bytes(path.read_bytes().replace(
        b'"F32"', b'"BF16"', 1)), 'is damaged'),
    (lambda path: path.write_bytes(safetensors.save(
        {'weight': np.ones(3, np.float32)}, {'lra': '[' * 100_000})),
     'is damaged .*nested'),
    (lambda path: path.unlink() or path.mkdir(), 'is damaged')])
def test_damaged_parameters_are_named(copy, spoil, words):
  spoil(copy / weights.NAME)
  with pytest.raises(UserError, match=f'copy/{weights.NAME} {words}') as e:
    lra.load(copy)
  assert '\n' not in str(e.value)


@pytest.mark.parametrize('step', ['-5', 'true', '1' + '0' * 400, '4.5', '"1"'])
def test_a_step_that_is_none_is_named(copy, step):
  path = copy / weights.NAME
  with safe_open(path, 'numpy') as f:
    about = json.loads(f.metadata()['lra'])
  text = json.dumps(about).replace(f'"step": {about["step"]}',
                                   f'"step": {step}')
  path.write_bytes(safetensors.save(
      safetensors.load_file(path), {'lra': text}))
  with pytest.raises(UserError, match='was not written by `export`'):
    lra.load(copy)


def test_parameters_of_another_config_are_named(copy):
  values = files.read_json(copy / 'config.json')
  values['encoder']['mlp_width'] = 24
  files.write_json(copy / 'config.json', values)
  with pytest.raises(UserError, match=r'mlp.* is \[.*16.*\] in .*, \[.*24'):
    lra.load(copy)


@pytest.mark.usefixtures('no_forward')
def test_half_a_folder_is_never_left(copy, tmp_path, monkeypatch):
  write = pathlib.Path.write_bytes

  def full(path, data):
    if path.name == 'README.md':
      raise OSError(28, 'No space left on device')
    return write(path, data)
  monkeypatch.setattr(pathlib.Path, 'write_bytes', full)
  with pytest.raises(UserError, match='Cannot write .*new .No space left'):
    export.export(tmp_path / 'new', copy)
  assert [path.name for path in tmp_path.iterdir()] == ['copy']


def test_what_cannot_be_exported_is_named(copy, tmp_path, monkeypatch):
  with pytest.raises(UserError, match='copy exists already'):
    export.export(copy, copy)
  with pytest.raises(UserError, match='--push=me is not the name'):
    export.export(tmp_path / 'new', copy, 'me')
  monkeypatch.setattr(huggingface_hub, 'get_token', lambda: None)
  with pytest.raises(UserError, match='--push=me/a needs a token'):
    export.export(tmp_path / 'new', copy, 'me/a')
  values = files.read_json(copy / 'result.json') | {
      'status': 'stopped', 'test': None}
  files.write_json(copy / 'result.json', values)
  with pytest.raises(UserError, match='no test accuracy .status stopped'):
    export.export(tmp_path / 'new', copy)
  (copy / 'result.json').unlink()
  with pytest.raises(UserError, match='result.json does not exist'):
    export.export(tmp_path / 'new', copy)
  assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize(
    'library', ['safetensors', 'flatbuffers', 'huggingface_hub'])
def test_a_missing_library_is_named(copy, tmp_path, monkeypatch, library):
  found = importlib.util.find_spec
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name, *rest: (
      None if name == library else found(name, *rest)))
  with pytest.raises(UserError, match=fr'{library}, which .*\[hub\]'):
    export.export(tmp_path / 'new', copy, 'me/a')
  if library != 'flatbuffers':
    with pytest.raises(UserError, match=fr'{library}, which .*\[hub\]'):
      lra.load(copy if library == 'safetensors' else 'hf:me/a')


@pytest.mark.usefixtures('no_forward')
def test_a_pushed_folder_is_the_written_one(copy, tmp_path, monkeypatch):
  sent = []
  monkeypatch.setattr(huggingface_hub, 'get_token', lambda: 'a token')
  monkeypatch.setattr(huggingface_hub, 'create_repo',
                      lambda name, **_: sent.append(name))
  monkeypatch.setattr(
      huggingface_hub, 'upload_folder', lambda *, repo_id, folder_path: (
          sent.append((repo_id, sorted(path.name for path in
                                       pathlib.Path(folder_path).iterdir())))))
  assert 'me/a' in export.export(tmp_path / 'new', copy, 'me/a')
  assert sent == ['me/a', ('me/a', sorted(
      path.name for path in copy.iterdir()))]

  def offline(**_):
    raise ConnectionError('no network\nat all')
  monkeypatch.setattr(huggingface_hub, 'upload_folder', offline)
  with pytest.raises(UserError, match='newer is written, but .*no network'):
    export.export(tmp_path / 'newer', copy, 'me/a')
  assert (tmp_path / 'newer' / weights.NAME).read_bytes() == (
      copy / weights.NAME).read_bytes()
