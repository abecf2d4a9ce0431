"""Solves lookup, copying, automata and variants of recall in plain Python."""

import dataclasses

import numpy as np
import pytest

from lra.data_prep import probes
from lra.data_prep.probes import automata, copying, lookup, recall

COUNTS = [300, pytest.param(10_000, marks=pytest.mark.full)]


def _examples(name, count, part=None):
  """Yields tokens and answers (class + 1, or 0) of sequences, as lists."""
  variant = probes.VARIANTS[name]
  part = part or variant.test[0]
  tokens, answers = variant.draw(
      np.random.default_rng(0), np.full(count, part.length),
      **{**variant.sizes, **part.sizes})
  yield from zip(tokens.tolist(), answers.tolist(), strict=True)


def _few(name, count=100):
  """Returns a split of `count` sequences of the last test part of a variant."""
  variant = probes.VARIANTS[name]
  part = dataclasses.replace(variant.test[-1], count=count)
  return probes.generate(dataclasses.replace(
      variant, train=(part,), val=(part,), test=(part,))).splits['test']


@pytest.mark.parametrize('count', COUNTS)
def test_forgetting_asks_for_the_last_value(count):
  updated = np.zeros(16)
  for tokens, answers in _examples('mqar_forgetting', count):
    values, first = {}, {}
    for i in range(0, 48, 2):
      key, value = tokens[i:i + 2]
      assert 0 < key < 64 <= value < 128
      if i >= 32:
        updated[list(first).index(key)] += 1
        assert values[key] == first[key] != value
      first.setdefault(key, value)
      values[key] = value
    assert len(values) == 16 == len(set(first.values()))
    queries = {t: tokens[t] for t in range(48, 96) if tokens[t]}
    assert sorted(queries.values()) == sorted(values)
    assert not any(t % 2 for t in queries)
    assert answers == [values[queries[t]] - 63 if t in queries else 0
                       for t in range(96)]
  assert np.abs(updated / count - 0.5).max() < 5 * 0.5 / count**0.5


@pytest.mark.parametrize('count', COUNTS)
def test_a_compositional_key_has_two_parts(count):
  for tokens, answers in _examples('mqar_compositional', count):
    values = {tuple(tokens[i:i + 2]): tokens[i + 2] for i in range(0, 48, 3)}
    firsts, seconds = map(set, zip(*values, strict=True))
    assert len(firsts) == len(seconds) == 4 and len(values) == 16
    assert all(0 < f < 64 for f in firsts)
    assert all(64 <= s < 128 for s in seconds)
    assert all(128 <= v < 192 for v in values.values())
    assert len(set(values.values())) == 16
    expected, asked = [0] * 96, []
    for t in range(48, 96, 3):
      asked.append(tuple(tokens[t:t + 2]))
      expected[t + 1] = values[asked[-1]] - 127
      assert tokens[t + 2] == 0
    assert answers == expected and set(asked) == set(values)


@pytest.mark.parametrize('count', COUNTS)
def test_zoologys_recall_is_a_dictionary_among_random_tokens(count):
  variant = probes.VARIANTS['mqar_zoology']
  for part in (*variant.train[:2], *variant.tests.values()):
    n = part.sizes['pairs']
    if count > 300 and part.length > 256:
      continue
    slots, junk = [], set()
    for tokens, answers in _examples('mqar_zoology', count // 10, part):
      known = dict(zip(tokens[0:2 * n:2], tokens[1:2 * n:2], strict=True))
      assert len(known) == len(set(known.values())) == n
      assert all(0 < k < 4096 <= v < 8192 for k, v in known.items())
      asked = [t for t, answer in enumerate(answers) if answer]
      assert sorted(tokens[t] for t in asked) == sorted(known)
      assert all(t >= 2 * n and t % 2 == 0 for t in asked)
      assert all(answers[t] == known[tokens[t]] + 1 for t in asked)
      slots += asked
      junk |= set(tokens[2 * n + 1::2])
    assert max(junk) > 8000 and len(junk) > 300


def test_zoologys_parts_are_the_published_ones():
  variant = probes.VARIANTS['mqar_zoology']
  assert [(p.length, p.sizes['pairs'], p.count) for p in variant.train] == [
      (64, 4, 100_000), (128, 8, 20_000), (256, 16, 20_000), (256, 32, 20_000),
      (256, 64, 20_000)]
  assert list(variant.tests) == [
      '64/4', '64/8', '64/16', '128/32', '256/64', '512/128', '1024/256']
  assert all(part.count == 1000 for part in variant.tests.values())


def test_a_named_test_has_its_own_sequences():
  variant = probes.VARIANTS['mqar_zoology']
  part = variant.tests['512/128']
  variant = dataclasses.replace(variant, tests={
      name: dataclasses.replace(part, count=20) for name in ('one', 'other')})
  one, same, other = (probes.generate_test(variant, name)
                      for name in ('one', 'one', 'other'))
  assert one.document(0) == same.document(0) != other.document(0)
  assert len(one) == 20 and (np.diff(one.offsets) == 512).all()


def test_numbers_drawn_without_replacement_are_uniform():
  drawn = recall.sample(np.random.default_rng(0), 5000, 500, 100)
  assert all(len(set(row)) == 100 for row in drawn.tolist())
  for place in (0, 50, 99):
    counts = np.bincount(drawn[:, place] // 50, minlength=10)
    assert np.abs(counts - 500).max() < 5 * 450**0.5


@pytest.mark.parametrize('count', COUNTS)
def test_a_phone_book_is_looked_up(count):
  for tokens, answers in _examples('phonebook', count):
    book = {}
    for i in range(0, 96, 6):
      name, number = tuple(tokens[i:i + 2]), tokens[i + 2:i + 6]
      assert min(name) >= 12 and all(2 <= d < 12 for d in number)
      assert book.setdefault(name, number) is number
    assert tokens[96] == lookup.ASK
    number = book[tuple(tokens[97:99])]
    assert tokens[99:] == number[:3]
    assert answers == 98 * [0] + [d - 1 for d in number]


def test_a_longer_phone_book_may_begin_with_blanks():
  made = probes.generate_longer(probes.VARIANTS['phonebook'], 208, 208)
  tokens = list(made.document(0))
  assert tokens[:4] == 4 * [lookup.BLANK] and tokens[4] >= lookup.LETTERS
  assert tokens[-6] == lookup.ASK


@pytest.mark.parametrize('count', COUNTS)
def test_copying_asks_for_the_first_symbols(count):
  for tokens, answers in _examples('copying', count):
    assert all(2 <= token < 10 for token in tokens[:20])
    assert tokens[20:] == 5 * [copying.NOISE] + [copying.ASK] + 20 * [
        copying.NOISE]
    assert answers == 26 * [0] + [token - 1 for token in tokens[:20]]


def test_the_chance_that_an_automaton_has_of_each_number_of_edges():
  target = automata._automata(np.random.default_rng(0), 2000, 4, 6, 3)
  degree = (target >= 0).sum(2)
  assert np.allclose(np.bincount(degree.ravel()) / degree.size,
                     [0, 1 / 3, 1 / 3, 1 / 3], atol=0.02)
  for state in range(6):
    assert not (target[:, state] == state).any()
    for row in target[:200, state]:
      edges = row[row >= 0].tolist()
      assert len(set(edges)) == len(edges) and max(edges) < 6


@pytest.mark.parametrize('count', COUNTS)
def test_words_follow_their_automaton(count):
  """Walks the automata, which the generator draws first from its stream."""
  sizes = probes.VARIANTS['regbench_mini'].sizes
  target = automata._automata(
      np.random.default_rng(0), count,
      *(sizes[name] for name in ('letters', 'states', 'most')))
  legal, ends = 0, 0
  for edges, (tokens, answers) in zip(
      target, _examples('regbench_mini', count), strict=True):
    state = 0
    assert tokens[95] == automata.END
    for t, (token, answer) in enumerate(zip(tokens, answers, strict=True)):
      if token == automata.END:
        assert t < 96 and answer == 0
        state, ends = 0, ends + 1
        continue
      to = edges[state, token - 1]
      assert answer == (0 if t < 96 else 2 if to >= 0 else 1)
      assert to >= 0 or t >= 96
      state = to if to >= 0 else state
      legal += answer == 2
  assert legal / count / 32 == pytest.approx(0.5, abs=0.02)
  assert (ends / count - 1) / 95 == pytest.approx(0.1, abs=0.01)


def test_rules_of_recall_know_one_meaning_or_one_part():
  for name, rule, share in (
      ('mqar_forgetting', recall.first_meaning, 1 / 2),
      ('mqar_compositional', recall.by_second_part, 1 / 4),
      ('mqar_zoology', recall.first_value, 1 / 64)):
    split = _few(name)
    assert rule(split, split).mean() == pytest.approx(share), name


def test_the_rule_of_the_same_token():
  split, right = _few('phonebook'), []
  for i in range(len(split)):
    tokens = list(split.document(split.pairs[i, 0]))
    answers = list(split.document(split.pairs[i, 1]))
    for t in range(98, 102):
      guess = None
      for s in range(t - 1):
        if tokens[s] == tokens[t] and 2 <= tokens[s + 1] < 12:
          guess = tokens[s + 1] - 1
      right.append(guess == answers[t])
  found = lookup.same_token(split, split)
  assert found.tolist() == right and found.mean() > 0.2


def test_the_rule_of_known_pairs():
  split, right = _few('regbench_mini'), []
  for i in range(len(split)):
    tokens = list(split.document(split.pairs[i, 0]))
    answers = list(split.document(split.pairs[i, 1]))
    known, last = set(), automata.END
    for t, token in enumerate(tokens):
      if answers[t]:
        right.append(((last, token) in known) == (answers[t] == 2))
      else:
        known.add((last, token))
      if answers[t] != 1:
        last = token
  found = automata.known_pair(split, split)
  assert found.tolist() == right and 0.55 < found.mean() < 0.95
