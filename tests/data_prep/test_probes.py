"""Solves the probe tasks again in plain Python, one example at a time."""

import dataclasses
import itertools

import numpy as np
import pytest

from lra import data_prep
from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep import baselines, describe, probes
from lra.data_prep.content import fingerprint
from lra.data_prep.probes import copying, questions, recall

# MAD's harder settings change numbers of its tasks only.
PROBES = [name for name in probes.VARIANTS if name in tasks.TASKS]


def _examples(variant, split, count=100):
  """Returns (tokens, targets) of each of the first `count` examples."""
  made = probes.generate(variant).splits[split]
  return [tuple(list(made.document(d)) for d in pair)
          for pair in made.pairs[:count]]


def _small(name):
  """Returns a variant with at most 300 sequences in each part."""
  variant = probes.VARIANTS[name]
  return dataclasses.replace(variant, **{
      split: tuple(dataclasses.replace(part, count=min(part.count, 300))
                   for part in getattr(variant, split))
      for split in ('train', 'val', 'test')})


@pytest.mark.parametrize('split', ['train', 'test'])
def test_what_is_asked_of_recall_is_what_a_dictionary_says(split):
  variant = _small('mqar')
  n, half = variant.sizes['pairs'], variant.sizes['symbols'] // 2
  for tokens, asked in _examples(variant, split):
    known = dict(zip(tokens[0:2 * n:2], tokens[1:2 * n:2], strict=True))
    assert len(known) == len(set(known.values())) == n
    assert all(0 < key < half <= value < 2 * half
               for key, value in known.items())
    queries = {t: key for t, key in enumerate(tokens) if t >= 2 * n and key}
    assert sorted(queries.values()) == sorted(known)
    assert not any(t % 2 for t in queries)
    assert asked == [known[queries[t]] - half + 1 if t in queries else 0
                     for t in range(variant.length)]


def test_recall_fills_all_its_slots_and_asks_early_pairs_early():
  """Every second position after the pairs is a question; early keys come early.
  """
  variant = probes.VARIANTS['mqar']
  n = variant.sizes['pairs']
  tokens, _ = recall.draw_recall(
      np.random.default_rng(0), np.full(400, variant.length), **variant.sizes)
  questions = tokens[:, 2 * n::2]
  assert questions.all() and not tokens[:, 2 * n + 1::2].any()
  pair = (questions[:, :, None] == tokens[:, None, 0:2 * n:2]).argmax(2)
  first, last = pair[:, :8].mean(), pair[:, -8:].mean()
  assert first < 10 and last > 18


def test_recall_asks_early_as_if_drawn_one_after_the_other():
  """Each slot is chosen as often as by numpy's choice without replacement."""
  rng, slots, wanted, count = np.random.default_rng(0), 12, 4, 4000
  chances = 0.01 * np.arange(1, slots + 1) ** (0.01 - 1)
  found = np.bincount(
      recall.sample(rng, count, slots, wanted, chances).ravel(),
      minlength=slots)
  expected = np.bincount(np.concatenate([
      rng.choice(slots, wanted, replace=False, p=chances / chances.sum())
      for _ in range(count)]), minlength=slots)
  assert found[0] > 2 * found[-1]
  share = (found + expected) / 2 / count
  error = np.sqrt(2 * share * (1 - share) / count)
  assert np.all(np.abs(found - expected) / count < 5 * error)


def test_what_is_asked_of_copying_are_the_symbols_in_their_order():
  variant = _small('selective_copying')
  n = variant.sizes['copied']
  for tokens, asked in _examples(variant, 'val'):
    assert tokens[-n:] == n * [copying.ASK]
    symbols = [t for t in tokens[:-n] if t != copying.NOISE]
    assert len(symbols) == n and copying.ASK not in symbols
    assert asked == (len(tokens) - n) * [0] + [
        t - copying.SYMBOLS + 1 for t in symbols]


@pytest.mark.parametrize('name, degree', [
    ('parity', 2), ('permutations_3', 3), ('permutations_5', 5)])
def test_what_is_asked_of_permutations_is_where_things_end(name, degree):
  """Applies the permutations one after another to a list of positions."""
  elements = list(itertools.permutations(range(degree)))
  for split in ('train', 'test'):
    for tokens, asked in _examples(_small(name), split, 50):
      places = list(range(degree))  # the current position of each element
      expected = []
      for token in tokens:
        places = [elements[token][place] for place in places]
        expected.append(1 + (places[0] if degree == 5
                             else elements.index(tuple(places))))
      if split == 'test':
        expected[:-1] = [0] * (len(tokens) - 1)
      assert asked == expected


def test_parity_is_that_of_the_ones():
  for tokens, asked in _examples(_small('parity'), 'train', 20):
    assert asked == [1 + sum(tokens[:t + 1]) % 2 for t in range(len(tokens))]


@pytest.mark.parametrize('name', PROBES)
def test_splits_differ_and_are_always_the_same(name):
  one, other = (probes.generate(_small(name)) for _ in range(2))
  assert fingerprint(one.splits) == fingerprint(other.splits)
  first = [one.splits[s].document(one.splits[s].pairs[0, 0])
           for s in ('train', 'val', 'test')]
  assert len(set(first)) == 3


@pytest.mark.parametrize('name', PROBES)
def test_a_sequence_of_test_is_asked_for_as_many_classes_as_the_task_says(name):
  example, _ = questions.asked(probes.generate(_small(name)).splits['test'])
  numbers = np.bincount(example)
  if name not in ('mad_fuzzy_recall', 'mad_noisy_recall', 'mad_recall',
                  'mqar_zoology'):
    assert len(set(numbers)) == 1
  assert numbers.mean() == pytest.approx(tasks.get(name).answers, abs=0.5)


def test_floors():
  asked = probes.generate(_small('mqar')).splits
  pairs = probes.VARIANTS['mqar'].sizes['pairs']
  # Each value is asked for once, so any fixed guess is right once in `pairs`.
  right = recall.any_value(asked['train'], asked['test'])
  assert right.mean() == pytest.approx(1 / pairs)
  tracking = probes.generate(_small('permutations_3')).splits
  right = questions.majority(tracking['train'], tracking['test'])
  assert right.mean() == pytest.approx(1 / 6, abs=0.08)
  assert questions.chance(tracking['train'], tracking['test']).mean() == (
      pytest.approx(1 / 6))


def test_floor_by_place():
  """The baseline answers with the pair most often asked for at a position.

  A dictionary counts these pairs again.
  """
  variant = _small('mqar')
  splits, n = probes.generate(variant).splits, variant.sizes['pairs']
  half = variant.sizes['symbols'] // 2
  asked_of = {}
  for tokens, asked in _examples(variant, 'train', 300):
    for place, value in enumerate(asked):
      if value:
        pair = tokens[1:2 * n:2].index(value - 1 + half)
        asked_of.setdefault(place, [0] * n)[pair] += 1
  right = []
  for tokens, asked in _examples(variant, 'test', 300):
    for place, value in enumerate(asked):
      if value:
        counts = asked_of.get(place, [1])
        pair = counts.index(max(counts))
        right.append(tokens[1 + 2 * pair] - half + 1 == value)
  assert recall.by_place(splits['train'], splits['test']).tolist() == right


def test_floor_of_the_commonest_symbol():
  variant = _small('selective_copying')
  splits, right = probes.generate(variant).splits, []
  for tokens, asked in _examples(variant, 'test', 300):
    symbols = sorted(t for t in tokens if t >= copying.SYMBOLS)
    guess = max(symbols, key=symbols.count)
    right += [guess - copying.SYMBOLS == a - 1 for a in asked if a]
  found = copying.commonest_symbol(splits['train'], splits['test'])
  assert found.tolist() == right
  assert found.mean() > 0.2


def test_nothing_is_stored_and_all_described(tmp_path):
  assert data_prep.prepare('parity', tmp_path) is None
  assert not list(tmp_path.iterdir())
  with pytest.raises(UserError, match='leave out --source'):
    data_prep.prepare('parity', tmp_path, tmp_path)
  content = data_prep.read('parity')
  text = describe.describe('parity', content)
  assert 'questions' in text and 'labels of train, val, test' in text
  assert baselines.quick('parity', content.splits)['majority'] == (
      pytest.approx(0.5, abs=0.06))
