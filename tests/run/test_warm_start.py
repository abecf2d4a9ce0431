"""Starts runs from the parameters of others."""

import importlib
import shutil

import jax
import numpy as np
import pytest

import lra
from lra.core import files
from lra.core.errors import UserError
from lra.many import execute
from lra.run import train, warm_start
from lra.schema import identity
from tests.helpers import small

ATTENTION = r'encoder/block_(\d+)/mixer/(query|key|value)/.*'
RULES = ((ATTENTION, r'\g<0>'), ('.*', None))
SHORT = dict(steps=3, eval_every=3, warmup_steps=1, log_every=3)


def arrays(**shapes):
  return {name.replace('__', '/'): np.full(shape, i, np.float32)
          for i, (name, shape) in enumerate(shapes.items(), 1)}


def config(model='transformer', seed=0, **fields):
  c = small.config(model, 'parity', **SHORT)
  c.seed = seed
  c.update(fields)
  return c


def trained(folder):
  """Returns {name: array} of a run's parameters and constants."""
  made = lra.load(folder)
  return warm_start.names_of(
      jax.device_get(made.params), jax.device_get(made.constants))


@pytest.fixture(scope='module')
def source(tmp_path_factory):
  """Returns the folder of a run of the model performer, with constants."""
  folder = tmp_path_factory.mktemp('source') / 'run'
  train.train(small.experiment(config('performer'), folder))
  return folder


@pytest.fixture
def finished(tmp_path):
  """Returns the folder of a finished run, without checkpoints."""
  folder = tmp_path / 'finished'
  (folder / 'checkpoints' / 'last').mkdir(parents=True)
  files.write_json(folder / 'config.json', config('performer').to_dict())
  files.write_json(folder / 'result.json', {})
  return folder


def test_every_array_is_accounted_for():
  ours = arrays(a__w=(2, 3), a__b=(3,), c__w=(2, 2), d=(1,))
  theirs = arrays(x__w=(2, 3), x__b=(3,), d=(1,), e=(5,))
  start = warm_start.choose(
      ((r'a/(.)', r'x/\1'), ('d', 'd'), ('c/.*', None)), ours, theirs)
  assert {name: origin for name, (origin, _) in start.taken.items()} == {
      'a/w': 'x/w', 'a/b': 'x/b', 'd': 'd'}
  for origin, value in start.taken.values():
    np.testing.assert_array_equal(value, theirs[origin])
  assert start.fresh == ('c/w',) and start.dropped == ('e',)
  words = [line.split() for line in start.table().splitlines()]
  assert sorted((row[0], row[3]) for row in words) == sorted(
      [('taken', 'a/w'), ('taken', 'a/b'), ('taken', 'd'), ('fresh', 'c/w'),
       ('dropped', 'e')])


@pytest.mark.parametrize('rules, culprit', [
    ((('a', 'a'),), 'b'),                     # b has no rule
    ((('.*', None), ('a', 'a')), 'a'),        # a rule that decides nothing
    ((('a', 'missing'), ('.*', None)), 'missing'),
    ((('b', 'c'), ('.*', None)), r'\(4,\)'),  # another shape
    ((('a', r'\3'), ('.*', None)), 'group'),
    ((('.*', None),), 'no array')])
def test_rules_that_cannot_hold_are_named(rules, culprit):
  with pytest.raises(UserError, match=culprit):
    warm_start.choose(rules, arrays(a=(2,), b=(3,)), arrays(a=(2,), c=(4,)))


def test_the_experiment_depends_on_the_source_and_not_on_its_place(
    finished, tmp_path):
  moved = shutil.copytree(finished, tmp_path / 'moved')
  hashes = {identity.config_hash(small.experiment(
      config('performer', **fields)).config.to_dict()) for fields in (
          dict(init_from=str(finished)), dict(init_from=str(moved)))}
  assert len(hashes) == 1
  others = [{}, dict(init_from=f'{finished}/checkpoints/last'),
            dict(init_from=str(finished), init_rules=(('.*', r'\g<0>'),))]
  for fields in others:
    hashes.add(identity.config_hash(small.experiment(
        config('performer', **fields)).config.to_dict()))
  assert len(hashes) == 4


def test_a_config_names_its_run_with_the_same_seed(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  words = 'configs/performer.py:parity train.steps=7 train.warmup_steps=1'
  made = [small.experiment(config(seed=seed, init_from=words))
          for seed in (0, 3)]
  whole = importlib.import_module('lra.configs.performer').get_config('parity')
  whole.train.steps, whole.train.warmup_steps = 7, 1
  for run, seed in zip(made, (0, 3), strict=True):
    whole.seed = seed
    expected = small.experiment(whole)
    assert run.start == expected.folder
    assert run.config.init_source == identity.config_hash(
        expected.config.to_dict())
  with pytest.raises(UserError, match='does not exist'):
    train.train(made[0])
  assert not made[0].folder.exists()


@pytest.mark.parametrize('status', [None, 'stopped', 'oom'])
def test_an_unfinished_source_is_refused(finished, status):
  (finished / 'result.json').unlink()
  if status:
    files.write_json(finished / 'result.json', {'status': status})
  with pytest.raises(UserError, match='not finished'):
    small.experiment(config('performer', init_from=str(finished)))


_HALF = ['2.orbax-checkpoint-tmp', '2.orbax-checkpoint-tmp-7', '', 'x']


@pytest.mark.parametrize('left', _HALF)
def test_half_a_checkpoint_is_no_state(finished, tmp_path, left):
  """The run reads its source again; here the source has no parameters."""
  c = config('performer', init_from=str(finished))
  (tmp_path / 'run/checkpoints/last' / left).mkdir(parents=True)
  with pytest.raises(UserError, match='finished/checkpoints has no'):
    train.train(small.experiment(c, tmp_path / 'run'))


@pytest.mark.parametrize('source', ['', 'best/2', 'last/2'])
@pytest.mark.parametrize('left', [*_HALF, '2'])
def test_a_source_is_trained_until_its_run_has_a_checkpoint(
    tmp_path, monkeypatch, source, left):
  """The source may have been stopped: then it has checkpoints of its own."""
  monkeypatch.chdir(tmp_path)
  c = small.config('transformer', 'listops_mini', **SHORT)
  c.pretrain.objective = 'masked'
  run, trained = small.experiment(c), []
  (run.source.folder / 'checkpoints' / source).mkdir(parents=True)
  (run.folder / 'checkpoints/last' / left).mkdir(parents=True)
  monkeypatch.setattr(execute, '_trained', lambda runs, *_: iter(
      trained.extend(runs) or ()))
  execute.train_sources([run], execute.Options(None))
  assert [one.folder for one in trained] == (
      [] if left == '2' else [run.source.folder])


@pytest.mark.full
def test_frozen_arrays_keep_the_bytes_of_the_source(source, tmp_path):
  """Copies the attention of performer into the transformer and freezes it."""
  c = config('transformer', init_from=str(source), init_rules=RULES)
  c.optim.groups = ((ATTENTION, None), ('.*', {}))
  result = train.train(small.experiment(c, tmp_path / 'run'))
  before, after = trained(source), trained(tmp_path / 'run')
  copied = [name for name in after if '/query/' in name or '/key/' in name
            or '/value/' in name]
  assert len(copied) == 6 and result.init_sha256
  for name in copied:
    assert after[name].tobytes() == before[name].tobytes(), name


@pytest.mark.full
def test_a_start_from_all_arrays_begins_at_the_scores_of_the_source(
    source, tmp_path):
  """With a learning rate of 0, parameters and constants stay as they were."""
  c = config('performer', seed=5, init_from=str(source))
  c.train.learning_rate, c.optim.ema = 0.0, 0.5
  train.train(small.experiment(c, tmp_path / 'run'))
  before, after = trained(source), trained(tmp_path / 'run')
  assert before.keys() == after.keys()
  assert any(not name.startswith('encoder') for name in before)
  for name, value in before.items():
    np.testing.assert_array_equal(after[name], value)


@pytest.mark.full
def test_seeds_start_from_their_own_sources_of_one_config(tmp_path):
  for seed in (0, 1):
    train.train(small.experiment(config(seed=seed), tmp_path / f's{seed}'))
  train.train(small.experiment(config('lightning', 2), tmp_path / 's2'))
  made = small.experiment(config(init_from=str(tmp_path / 's{seed}')))
  digests = set()
  for seed in (0, 1):
    run = small.experiment(made.with_seed(seed).config, tmp_path / f'r{seed}')
    digests.add(train.train(run).init_sha256)
  assert len(digests) == 2
  with pytest.raises(UserError, match='expected'):
    train.train(small.experiment(made.with_seed(2).config, tmp_path / 'r2'))
  assert not (tmp_path / 'r2').exists()


@pytest.mark.full
def test_a_resumed_run_does_not_read_its_source(source, tmp_path):
  c = config('performer', init_from=str(source))
  once = train.train(small.experiment(c, tmp_path / 'once'))
  stop = train.train(small.experiment(c, tmp_path / 'twice'), max_minutes=0)
  assert stop.status == 'stopped'
  shutil.rmtree(source / 'checkpoints')
  again = train.train(small.experiment(c, tmp_path / 'twice'))
  assert again.init_sha256 == once.init_sha256
  assert again.test == once.test
