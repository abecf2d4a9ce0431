"""Solves MAD's tasks again in plain Python, one example at a time."""

import itertools

import numpy as np
import pytest

from lra.core import mad, tasks
from lra.data_prep.probes import mad as drawn

# Values of the keys 0 to 3, from `generate_kv_map(255)` of the released code.
PUBLISHED = [239, 241, 146, 166]
COUNT = 300


def _examples(name, train, count=COUNT):
  """Yields tokens and answers (class + 1, or 0) of a setting, as lists."""
  variant = drawn.VARIANTS[name]
  part, = variant.train if train else variant.test
  tokens, answers = variant.draw(
      np.random.default_rng(0), np.full(count, part.length),
      **{**variant.sizes, **part.sizes})
  assert tokens.shape == answers.shape == (count, tasks.get(name).seq_len)
  yield from zip(tokens.tolist(), answers.tolist(), strict=True)


def _whole(tokens, answers):
  """Returns all tokens, of which the last is an answer only."""
  return [*tokens, answers[-1] - 1]


@pytest.mark.parametrize('name', [
    'mad_recall', 'mad_recall_v64', 'mad_recall_l256', 'mad_noisy_recall',
    'mad_noisy_recall_noise80', 'mad_noisy_recall_v48'])
def test_recall_is_a_dictionary(name):
  base = name[:name.index('recall') + 6]
  setting = mad.settings(base)[name]
  known = setting['vocab'] - setting.get('noise_symbols', 0)
  noisy, pairs = 0, 0
  for tokens, answers in _examples(name, train=False):
    whole, values = _whole(tokens, answers), {}
    assert len(whole) == setting['length']
    for t in range(0, len(whole), 2):
      key, value = whole[t:t + 2]
      pairs += 1
      # The value of a pair is asked for at its key, never at the value.
      assert t == 0 or answers[t - 1] == 0
      if key >= known:
        assert known <= value < setting['vocab'] and not answers[t]
        noisy += 1
        continue
      assert key < known // 2 <= value < known
      assert answers[t] == (1 + value if key in values else 0)
      assert values.setdefault(key, value) == value
  # One pair and the last one are no noise.
  share = setting.get('noise', 0) * (1 - 2 * COUNT / pairs)
  assert noisy / pairs == pytest.approx(share, abs=0.02)
  for tokens, answers in _examples(name, train=True, count=30):
    assert answers == [1 + token for token in _whole(tokens, answers)[1:]]


def _motifs(tokens, first_value):
  """Splits tokens into keys and values, which alternate."""
  runs = [tuple(run) for _, run in itertools.groupby(
      tokens, key=lambda token: token >= first_value)]
  return list(zip(runs[::2], runs[1::2], strict=True))


@pytest.mark.parametrize('train', [False, True])
@pytest.mark.parametrize('name', ['mad_fuzzy_recall', 'mad_fuzzy_recall_v32'])
def test_fuzzy_recall_is_a_dictionary_of_motifs(name, train):
  vocab = mad.settings('mad_fuzzy_recall')[name]['vocab']
  padding, first_value = vocab - 1, (vocab - 1) // 2
  sizes, found, places = set(), 0, set()
  for tokens, answers in _examples(name, train):
    whole = _whole(tokens, answers)
    begin = next(t for t, token in enumerate(whole) if token != padding)
    assert begin >= 1 and padding not in whole[begin:]
    values, expected = {}, [0] * begin
    motifs = _motifs(whole[begin:], first_value)
    for i, (key, value) in enumerate(motifs):
      assert len(set(key)) == len(key) and len(set(value)) == len(value)
      sizes.add((len(key), len(value)))
      final = i == len(motifs) - 1
      found += final and key in values
      places |= {list(values).index(key)} if final and key in values else set()
      known = final or key in values
      expected += [0] * len(key)
      expected += [1 + token if known else 0 for token in value]
      assert values.setdefault(key, value) == value
    if train:
      expected = [1 + token for token in whole]
    assert answers == expected[1:]
  assert sizes == set(itertools.product(
      (1, 2, 3) if train else (3,), (1, 2, 3)))
  # The place of the probe may come too late; else it is anywhere.
  assert 0.85 * COUNT < found < COUNT and len(places) > 15


@pytest.mark.parametrize('name', [
    'mad_copying', 'mad_copying_v32', 'mad_copying_k96', 'mad_copying_l512'])
def test_copying_asks_for_the_symbols_in_their_order(name):
  setting = mad.settings('mad_copying')[name]
  vocab, n = setting['vocab'], setting['copied']
  blank, sign = vocab - 2, vocab - 1
  before = np.zeros(n)
  for tokens, answers in _examples(name, train=False):
    assert tokens[-n:] == [blank] * n and tokens[-n - 1] == sign
    body = tokens[:-n - 1]
    symbols = [token for token in body if token < blank]
    assert len(symbols) == n and body[-1] < blank and sign not in body
    assert answers == [0] * (len(tokens) - n) + [1 + s for s in symbols]
    blanks = ''.join('b' if t == blank else '.' for t in body).split('.')
    before += [len(run) for run in blanks[:-1]]
  # Each symbol has equally many blanks before it.
  mean = (setting['length'] - 2 * n - 1) / n
  assert np.abs(before / COUNT - mean).max() < 6 * (mean / COUNT) ** 0.5


def test_compression_asks_for_the_whole_sequence():
  seen = np.zeros(16)
  for tokens, answers in _examples('mad_compression', train=False):
    assert tokens[-1] == 15 and max(tokens[:-1]) < 15
    assert answers == [1 + token for token in tokens]
    seen += np.bincount(tokens, minlength=16)
  assert np.abs(seen[:15] / seen[:15].sum() - 1 / 15).max() < 0.01


@pytest.mark.parametrize('name', ['mad_memorization', 'mad_memorization_v512'])
def test_memorization_has_one_dictionary(name):
  vocab = mad.settings('mad_memorization')[name]['vocab']
  half, values = (vocab - 1) // 2, {}
  assert drawn.dictionary(256)[:4].tolist() == PUBLISHED
  for train in (True, False):
    for tokens, answers in _examples(name, train):
      assert tokens[1::2] == [vocab - 1] * 16 and not any(answers[::2])
      for key, value in zip(tokens[::2], answers[1::2], strict=True):
        assert key < half <= value - 1 < vocab - 1
        assert values.setdefault(key, value) == value
  assert len(values) == len(set(values.values())) == half


def test_the_table_has_the_published_number_of_settings():
  numbers = {task: len(mad.settings(task)) for task in mad.BASELINES}
  assert numbers == {
      'mad_recall': 11, 'mad_fuzzy_recall': 11, 'mad_noisy_recall': 14,
      'mad_copying': 13, 'mad_compression': 11, 'mad_memorization': 6}
  for task in mad.BASELINES:
    for name, setting in mad.settings(task).items():
      assert tasks.get(name).num_classes == setting['vocab']
      assert name in drawn.VARIANTS
      part, = drawn.VARIANTS[name].train
      assert part.count == setting['examples']


def test_a_guess_of_the_commonest_symbol():
  from lra.data_prep import probes
  splits = probes.generate(drawn.VARIANTS['mad_compression_n800']).splits
  test, right = splits['test'], []
  for i in range(len(test)):
    tokens = list(test.document(test.pairs[i, 0]))
    guess = max(range(16), key=tokens.count)
    right += [guess == token for token in tokens]
  found = drawn.commonest_answer(splits['train'], test)
  assert found.tolist() == right
