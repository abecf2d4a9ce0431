"""Compares trained models, loaded in Python or a shell, with their records."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import lra
from lra.cli import main
from lra.cli.compare import compare
from lra.cli.evaluate import evaluate
from lra.cli.predict import predict
from lra.core import bits, files, tasks
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import encode, listops
from lra.objectives import classification
from lra.run import train
from lra.share import quantised
from tests.helpers import (
  commands,
  damage,
  documents,
  int8_oracle,
  scored,
  small,
  tiny,
)
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.usefixtures('quick_runs')


@pytest.fixture(scope='module')
def folder(mini_data, tmp_path_factory):
  """Trains a run whose scored parameters are not its last; returns its folder.
  """
  c = small.config('transformer', 'listops_mini', steps=200, eval_every=50,
                   learning_rate=0.1, warmup_steps=50, batch_size=32,
                   microbatch_size=32, eval_batch_size=48)
  c.data_dir, c.seq_len, c.encoder.pooling = str(mini_data), 0, 'mean'
  where = tmp_path_factory.mktemp('api') / 'run'
  better = iter([True, True, False])  # the third validation of four is the best
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(classification.Objective, 'better', lambda *_: next(better))
    train.train(small.experiment(c, where))
  return where


@pytest.fixture(scope='module')
def trained(folder):
  return lra.load(folder)


def _expressions(mini_data, count):
  split = prepared.load('listops_mini', mini_data).splits['test']
  return split, [listops.decode(split.document(i)) for i in range(count)]


def test_predictions_are_right_where_the_record_says_so(
    folder, trained, mini_data):
  split, texts = _expressions(mini_data, 150)
  found = trained.predict(texts)
  test = files.read_json(folder / 'result.json')['test']
  right = bits.unpack(test['correct'], len(split))[:150]
  assert [p.label == y for p, y in zip(
      found, split.labels.tolist(), strict=False)] == right.tolist()
  assert len({p.name for p in found}) > 1
  for p in found:
    assert p.probabilities.shape == (10,) and p.name == str(p.label)
    assert p.probabilities.sum() == pytest.approx(1, abs=1e-5)
    assert p.label == p.probabilities.argmax()


def test_evaluation_equals_the_recorded_score(folder, trained, mini_data):
  test = files.read_json(folder / 'result.json')['test']
  scores = trained.evaluate('test', mini_data)
  assert scores['confusion'] == test['confusion']
  assert scores['loss'] == pytest.approx(test['loss'], rel=1e-6)
  assert trained.step == files.read_json(folder / 'result.json')['best_step']
  with pytest.raises(UserError, match="no split 'dev'"):
    trained.evaluate('dev', mini_data)


def test_the_int8_version_answers_as_layers_rounded_in_float64(
    folder, trained, mini_data):
  split, texts = _expressions(mini_data, 48)
  tokens = trained.program.objective.batch(
      split, np.arange(48), seed=0, step=-1)['tokens']
  want = int8_oracle.logits(
      trained.program.model, {'params': trained.params, **trained.constants},
      tokens).argmax(-1)
  rounded = trained.quantised()
  found = rounded.predict(texts)
  assert sum(p.label != y for p, y in zip(found, want, strict=True)) <= 1

  with pytest.raises(UserError, match='int8'):
    rounded.evaluate_longer('64')

  pair = quantised.measure(folder, seconds=0)
  exact, rounded = pair.samples
  assert exact.accuracies[0] == trained.evaluate('test')['accuracy']
  right = [p.label == y for p, y in zip(found, split.labels, strict=False)]
  assert rounded.correct[0][:48].tolist() == right
  only, other = pair.only
  assert (only - other) / len(split) == pytest.approx(
      exact.accuracies[0] - rounded.accuracies[0])
  assert pair.bytes[1] < pair.bytes[0] and min(pair.seconds) > 0
  assert 'transformer' in pair.text() and 'int8' in pair.text()


def test_the_example_of_the_documents_runs(folder, mini_data, monkeypatch):
  text = documents.example('load')
  text = text.replace('runs/listops_mini/simpletron/<config hash>-s0',
                      str(folder))
  monkeypatch.chdir(mini_data)  # load() needs no runs/ in this directory
  exec(text, {})


def test_nothing_in_the_folder_changes(folder):
  def state():
    return {path: path.stat().st_mtime_ns for path in folder.rglob('*')}
  before = state()
  lra.load(folder).predict(['[MAX 2 9 ]'])
  assert state() == before


@pytest.mark.full
@tiny.needs_libtpu
def test_a_model_is_loaded_without_a_word_on_stderr(folder):
  done = subprocess.run(
      [sys.executable, '-c', 'import lra, sys; lra.load(sys.argv[1])',
       str(folder)], text=True, capture_output=True, check=True,
      env=tiny.without_platforms())
  assert not done.stderr


@pytest.mark.full
def test_each_checkpoint_of_a_run_is_a_model(folder, trained, mini_data):
  """Each step has its own logged validation loss, which identifies the model.
  """
  logged = {
      point['step']: point['loss'] for point in map(json.loads, (
          folder / 'metrics.jsonl').read_text().splitlines())
      if point['split'] == 'val'}
  places = folder / 'checkpoints'
  best = int(max((places / 'best').iterdir(), key=lambda p: int(p.name)).name)
  wanted = {places: trained.step, places / 'best': best, places / 'last': 200,
            **{path: int(path.name) for path in places.glob('*/*')}}
  assert trained.step == best == 150 and len(wanted) >= 6
  for place, step in wanted.items():
    model = lra.load(place)
    assert model.step == step
    assert model.evaluate('val', mini_data)['loss'] == pytest.approx(
        logged[step], rel=1e-6), place
  assert len(set(logged.values())) == len(logged)
  assert 'recorded' not in evaluate(places / 'last')


def test_a_damaged_best_is_not_scored(folder, trained, tmp_path):
  """The error names damaged parameters and does not advise deleting them."""
  copy = tmp_path / 'run'
  shutil.copytree(folder, copy)
  best = copy / 'checkpoints/best' / str(trained.step)
  largest = max(best.glob('*/d/*'), key=lambda path: path.stat().st_size)
  damage.flip_a_bit(largest, largest.stat().st_size // 2)
  for remove in (None, shutil.rmtree):
    if remove:
      remove(best)
    for place in (copy, best.parent, *(() if remove else (best,))):
      with pytest.raises(UserError, match=(
          f'best/{trained.step} is damaged .*restore it from a copy, or give '
          'another of the checkpoints')):
        lra.load(place)
  assert lra.load(copy / 'checkpoints/last').step == 200


@pytest.mark.parametrize('section, field, value, words', [
    ('encoder', 'num_layers', 2, 'it has no params/encoder/block_1/'),
    ('encoder', 'mlp_width', 24, r'params/.* is \[.*16.*\] in .*, \[.*24'),
    ('optim', 'name', 'sgd', 'it has opt_state/.*, which the config')])
def test_a_config_that_is_not_the_checkpoints_is_no_damage(
    folder, trained, tmp_path, section, field, value, words):
  copy = tmp_path / 'run'
  shutil.copytree(folder, copy)
  values = files.read_json(copy / 'config.json')
  values[section][field] = value
  (copy / 'config.json').write_text(json.dumps(values))
  with pytest.raises(UserError, match=f'is not of this config: {words}') as e:
    lra.load(copy)
  assert 'Undo' in str(e.value) and 'delete' not in str(e.value)
  if section == 'encoder':
    with pytest.raises(UserError, match='best/.* is not of this config'):
      lra.load(copy / 'checkpoints/best' / str(trained.step))


def test_a_damaged_newest_state_is_passed_over(folder, trained, tmp_path):
  """The older state is loaded and no file moves, as the run may still train."""
  copy = tmp_path / 'run'
  shutil.copytree(folder, copy)
  steps = sorted((copy / 'checkpoints/last').iterdir(),
                 key=lambda path: int(path.name))
  assert len(steps) == 2
  for path in (steps[-1] / 'memory').rglob('*'):
    if path.is_file():
      path.write_bytes(path.read_bytes()[:-9])
  names = sorted(copy.rglob('*'))
  assert lra.load(copy).step == min(trained.step, int(steps[0].name))
  assert sorted(copy.rglob('*')) == names


@pytest.mark.parametrize('examples, words', [
    (['[MAX 2 9 ]', '[MAX 2 x ]'], "Example 1, .*listops_mini.*'x'"),
    (['[MAX 2 ' + 'x' * 5000], "Example 0, .{,400}$"),
    (['[MAX 2 9'], 'not one complete expression'),
    ([3], 'Example 0'),
    ('[MAX 2 9 ]', r'put this one in \[ \]')])
def test_what_is_no_example_is_named(trained, examples, words):
  with pytest.raises(UserError, match=words):
    trained.predict(examples)
  assert trained.predict([]) == []


def test_a_run_older_than_a_field_is_what_it_was(folder, trained, tmp_path):
  copy = tmp_path / 'run'
  shutil.copytree(folder, copy)
  values = files.read_json(copy / 'config.json')
  del values['encoder']['mean_over'], values['optim'], values['mask_black']
  (copy / 'config.json').write_text(json.dumps(values))
  same = lra.load(copy)
  assert same.config.encoder.mean_over == 'tokens'
  found, want = (x.predict(['[MAX 2 9 ]'])[0] for x in (same, trained))
  np.testing.assert_array_equal(found.probabilities, want.probabilities)
  del values['encoder']
  (copy / 'config.json').write_text(json.dumps(values))
  with pytest.raises(UserError, match='run/config.json is not the config'):
    lra.load(copy)


@pytest.mark.parametrize('name, spoil, words', [
    ('none', None, 'is not the directory of a run'),
    ('new', 'checkpoints', 'has no checkpoint yet'),
    ('empty', 'checkpoints/last', 'has no checkpoint yet'),
    ('finished', 'checkpoints', 'is finished: restore it')])
def test_a_folder_without_a_model_is_named(
    folder, tmp_path, name, spoil, words):

  if spoil:
    shutil.copytree(folder, tmp_path / name)
    shutil.rmtree(tmp_path / name / spoil)
    if name != 'finished':
      (tmp_path / name / 'result.json').unlink()
  with pytest.raises(UserError, match=words):
    lra.load(tmp_path / name)


def test_texts_pairs_and_images_become_what_data_sets_hold(tmp_path):
  rng = np.random.default_rng(0)
  text = encode.split(tasks.get('text'), ['Ünï', b'\x00\xff'])
  assert [text.document(i) for i in (0, 1)] == [
      'Ünï'.encode(), b'\x00\xff']
  pair = encode.split(tasks.get('retrieval_rfc'), [('a', 'b'), ('c', 'd')])
  assert [pair.document(i) for i in pair.pairs[1]] == [b'c', b'd']
  grey = rng.integers(0, 256, (32, 32), np.uint8)
  Image.fromarray(grey).save(tmp_path / 'x.png')
  for image in (grey, tmp_path / 'x.png'):
    split = encode.split(tasks.get('image'), [image])
    assert split.document(0) == grey.tobytes()
  # If R = G = B, 0.2989 R + 0.587 G + 0.114 B is the same value up to rounding.
  colour = np.repeat(grey[..., None], 3, axis=-1)
  codes = encode.split(tasks.get('image'), [colour]).tokens.reshape(32, 32)
  assert np.abs(codes.astype(int) - grey).max() <= 1
  small_one = encode.split(tasks.get('image_mini'), [grey]).tokens
  np.testing.assert_allclose(
      small_one.reshape(16, 16), grey.reshape(16, 2, 16, 2).mean((1, 3)),
      rtol=0, atol=0.5)  # means are rounded
  with pytest.raises(UserError, match='32 x 32 pixels, not 64 x 64'):
    encode.split(tasks.get('pathfinder64'), [grey])


def test_how_a_picture_is_stored_does_not_matter(tmp_path):
  red = Image.new('RGB', (32, 32), (200, 30, 30))
  red.putpixel((3, 4), (0, 90, 250))
  seen = {encode.split(tasks.get('image'), [np.asarray(red)]).document(0)}
  palette = red.quantize(4)
  for name, image in {'p.png': palette, 'p.gif': palette, 'c.png': red,
                      'a.png': red.convert('RGBA')}.items():
    image.save(tmp_path / name)
    for given in (image, tmp_path / name):
      seen.add(encode.split(tasks.get('image'), [given]).document(0))
  assert len(seen) == 1
  bits_only = Image.new('1', (32, 32), 1)
  white = encode.split(tasks.get('image'), [bits_only]).document(0)
  assert set(white) == {255}


def test_classes_have_their_names():
  assert encode.names(tasks.get('text_mini')) == ('negative', 'positive')
  assert encode.names(tasks.get('image'))[3] == 'cat'
  assert encode.names(tasks.get('listops'))[7] == '7'
  for task in tasks.TASKS.values():
    assert len(encode.names(task)) == task.num_classes


@pytest.mark.full
def test_the_command_line_evaluates_and_predicts(folder, mini_data, tmp_path):
  _, texts = _expressions(mini_data, 3)
  (tmp_path / 'x.txt').write_text('\n'.join(texts) + '\n')
  done = commands.run('run_lra', 'predict',
                      str(tmp_path / 'x.txt'), str(folder))
  assert done.returncode == 0, done.stderr
  lines = [line.split('\t') for line in done.stdout.splitlines()]
  want = lra.load(folder).predict(texts)
  assert [line[0] for line in lines] == [p.name for p in want]
  assert [line[2][:20] for line in lines] == [text[:20] for text in texts]
  accuracy = files.read_json(folder / 'result.json')['test']['accuracy']
  assert f'{accuracy:.4f}  (recorded {accuracy:.4f})' in (
      evaluate(folder))


@pytest.mark.full
def test_other_data_than_the_runs_is_named(folder, tmp_path, capsys):
  copy = tmp_path / 'run'
  shutil.copytree(folder, copy)
  for name, changes in (('env.json', {'data_fingerprint': 64 * 'a'}),
                        ('result.json', {'data_origin': 'an older one'})):
    kept = files.read_json(copy / name)
    kept.pop('data_origin')
    files.write_json(copy / name, {**kept, **changes})
  words = r'\(an older one, aaaaaaaa\) than the prepared data \(generated with'
  with pytest.raises(UserError, match=words):
    evaluate(copy)
  capsys.readouterr()
  lra.load(copy).evaluate('test')
  assert re.search(words, capsys.readouterr().err)
  lra.load(folder).evaluate('test')
  assert 'the prepared data' not in capsys.readouterr().err


def test_lines_of_a_file_are_those_of_the_answer(folder, tmp_path):
  """The file has a byte order mark, CRLF line ends and an empty line."""
  path = tmp_path / 'x.txt'
  path.write_bytes('\ufeff[MAX 2 9 ]\r\n\r\n[MIN 2\u2028 9 ]\n'.encode())
  lines = predict(path, folder).split('\n')
  assert len(lines) == 3 and lines[1] == ''
  assert lines[0].endswith('\t[MAX 2 9 ]') and '[MIN 2' in lines[2]
  for text, words in (('[MAX 2 9 ]\n\n[MAX y ]\n', "x.txt, line 3 .*'y'"),
                      ('\n\n', 'x.txt is empty')):
    path.write_text(text)
    with pytest.raises(UserError, match=words):
      predict(path, folder)


@pytest.mark.parametrize('tokens, cut', [(32, False), (33, True)])
def test_an_example_that_is_cut_is_said(folder, tmp_path, capsys, tokens, cut):
  path = tmp_path / 'x.txt'
  path.write_text(f'[MAX {"2 " * (tokens - 2)}]\n[MAX 2 9 ]\n')
  predict(path, folder)
  assert ('1 of 2 inputs' in capsys.readouterr().err) == cut


def test_a_terminal_obeys_no_example(folder, tmp_path, capsys):
  """Python takes \x1c for a blank, as ListOps may have; ESC is in errors."""
  path = tmp_path / 'x.txt'
  path.write_text('[MAX 2\x1c\x85 9 ]')
  assert main.main(['predict', str(path), str(folder)]) == 0
  assert r'[MAX 2\x1c\x85 9 ]' in capsys.readouterr().out
  path.write_text('\x1b[2J')
  done = commands.run('run_lra', 'predict', str(path), str(folder))
  assert r'\x1b[2J' in done.stderr and '\x1b' not in done.stderr


def _record(path, right, **changes):
  """Writes the record of a run with 10 test answers; returns its path.

  `right` holds which answers are correct; `changes` sets fields of `train`.
  """
  record = json.loads(
      (ROOT / 'tests/board/data/result.json').read_text())
  record['test'] = scored.of(
      [[sum(right), len(right) - sum(right)], [0, 0]], correct=bits.pack(right))
  record['config']['train'] |= changes
  path.write_text(json.dumps(record))
  return path


def test_a_comparison_says_what_differs_and_whether_it_matters(tmp_path):
  a = _record(tmp_path / 'a.json', [True] * 9 + [False])
  b = _record(tmp_path / 'b.json', [False] * 9 + [True], learning_rate=7.5)
  lines = compare([a, b]).splitlines()
  assert lines[1].split() == ['train.learning_rate', 'unset', '7.5']
  # Wilson's 95% interval of 9 of 10, from an independent calculator.
  score, interval = (next(line for line in lines if line.startswith(start))
                     for start in ('test accuracy %', '95% interval'))
  assert score.split('%')[1].split() == ['90.0', '10.0']
  assert '59.6 to 98.2' in interval
  assert 'B - A: -80.0 points' in lines
  assert 'right in A only: 9; in B only: 1' in lines
  # McNemar's exact p for 9 against 1: 2 (1 + 10) / 2^10.
  assert lines[-2].startswith('p = 0.0215 (McNemar, exact')
  assert 'runs differ' in lines[-2] and 'seeds of its rows' in lines[-1]
  assert 'do not differ' in compare([a, a])


def test_several_runs_are_ranked_with_their_seeds(tmp_path):
  """Folders of runs count with all their seeds; rates part the rows."""
  for rate, right in ((1.0, (800, 810, 806)), (2.0, (790, 812, 805)),
                      (3.0, (400, 406, 410))):
    for seed, hits in enumerate(right):
      folder = tmp_path / f'{rate}' / f'x-s{seed}'
      folder.mkdir(parents=True)
      _record(folder / 'result.json', [True] * hits + [False] * (1000 - hits),
              learning_rate=rate)
  head, *lines = compare([tmp_path / name for name in ('1.0', '2.0', '3.0')]
                         ).splitlines()
  assert 'compared by seeds' in head
  found = {line.split('learning_rate=')[1][:3]: line for line in lines[-3:]}
  assert 'rank 1–2' in found['1.0'] and 'rank 1–2' in found['2.0']
  assert 'more seeds may tell' in found['1.0']
  assert 'rank 3 ' in found['3.0'] and 'differs significantly' in found['3.0']
  with pytest.raises(UserError, match='seed only'):
    compare([tmp_path / '1.0'])


def test_a_field_that_was_added_later_is_no_difference(tmp_path):
  """Only a value that earlier versions did not have is one."""
  old = _record(tmp_path / 'old.json', [True] * 10)
  new = json.loads(old.read_text())
  for ema, shown in ((0.0, []), (0.99, [['optim.ema', '0.0', '0.99']])):
    new['config']['optim'] = {'ema': ema, 'name': 'adamw'}
    (tmp_path / 'new.json').write_text(json.dumps(new))
    lines = compare([old, tmp_path / 'new.json']).splitlines()
    assert [line.split() for line in lines if 'optim.' in line] == shown


@pytest.mark.parametrize('value', [[], {}, [[1]], {'a': 1}, [1]], ids=str)
@pytest.mark.parametrize('name', ['task', 'model.name', 'model.num_heads'])
def test_a_config_that_somebody_has_edited_is_named(tmp_path, name, value):
  config = small.config('simpletron', 'listops_mini').to_dict()
  section, _, field = name.rpartition('.')
  (config[section] if section else config)[field] = value
  files.write_json(tmp_path / 'config.json', config)
  with pytest.raises(UserError, match=f'config.{name}'):
    lra.load(tmp_path)


@pytest.mark.parametrize('side', [14_000, 60_000])
def test_a_picture_that_is_far_too_large_is_no_example(tmp_path, side):
  """The header gives the size; for the smaller image PIL would only warn."""
  path = tmp_path / 'x.pbm'
  path.write_bytes(b'P4 %d %d\n' % (side, side))
  with pytest.raises(encode.NoExample, match='DecompressionBomb'):
    encode.split(tasks.get('pathfinder'), [path])
