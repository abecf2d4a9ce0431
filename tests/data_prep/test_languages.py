"""Solves formal languages and word problems again, one example at a time."""

import dataclasses
import itertools
import re

import numpy as np
import pytest

from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep import probes
from lra.data_prep.probes import languages, questions, regular
from lra.data_prep.probes.variant import Part

S3, S5 = (list(itertools.permutations(range(n))) for n in (3, 5))
# The determinant of a matrix with one 1 in each row is the sign.
A5 = [p for p in S5 if round(np.linalg.det(np.eye(5)[list(p)])) == 1]


def _pairs(split, count):
  """Returns (tokens, answers) of the first examples, as lists of numbers."""
  return [tuple(list(split.document(d)) for d in pair)
          for pair in split.pairs[:count]]


def _splits(name, count=300):
  """Returns the splits of a variant with `count` sequences in each part."""
  variant = probes.VARIANTS[name]
  return probes.generate(dataclasses.replace(variant, **{
      split: tuple(dataclasses.replace(part, count=count)
                   for part in getattr(variant, split))
      for split in ('train', 'val', 'test')})).splits


def _last(answer, tokens):
  return [0] * (len(tokens) - 1) + [answer + 1]


def _expression(tokens):
  text = ''.join(languages.SYMBOLS[t] for t in tokens)
  assert text.endswith('=')
  return text[:-1]


def _parity(tokens):
  return _last(tokens.count(1) % 2, tokens)


def _arithmetic(tokens):
  text = _expression(tokens)
  assert re.fullmatch(r'[0-4]([+*-][0-4])*', text)
  return _last(eval(text) % 5, tokens)


def _brackets(tokens):
  text = _expression(tokens)
  assert _end(text, 0) == len(text)
  return _last(eval(text) % 5, tokens)


def _end(text, at):
  """Returns the end of the expression that begins at a place of the text.

  Grammar: E is d, -d, (d), (-d), (E+E) or (E-E).
  """
  number = re.compile('-?[0-4]').match(text, at)
  if number:
    return number.end()
  assert text[at] == '('
  left = _end(text, at + 1)
  if text[left] == ')':
    assert text[at + 1] != '('
    return left + 1
  assert text[left] in '+-'
  right = _end(text, left + 1)
  assert text[right] == ')'
  return right + 1


def _words(elements, classes, tokens):
  """Moves things one after the other, and asks where all of them are."""
  places, answers = tuple(range(len(elements[0]))), []
  for token in tokens:
    places = tuple(elements[token][place] for place in places)
    answers.append(1 + classes.index(places))
  return answers


def _moving(*counts):
  return [p for p in S5 if 5 - sum(p[i] == i for i in range(5)) in counts]


def _even_pairs(tokens):
  return _last(sum(a != b for a, b in itertools.pairwise(tokens)) % 2, tokens)


def _cycle(tokens):
  return _last((tokens.count(2) - tokens.count(0)) % 5, tokens)


def _missing(tokens):
  half, odd = divmod(len(tokens), 2)
  assert tokens[2 * half:] == [regular.FILLING] * odd
  hidden = tokens.index(regular.MISSING)
  bit, = (bit for bit in range(2) for filled in [
      [*tokens[:hidden], bit, *tokens[hidden + 1:]]]
      if filled[:half] == filled[half:2 * half])
  return _last(bit, tokens)


def _sort(tokens):
  half = len(tokens) // 2
  assert set(tokens[:half]) <= set(range(5)) and tokens[half:] == [5] * half
  return [0] * half + [t + 1 for t in sorted(tokens[:half])]


def _dyck(tokens):
  """Removes closed pairs from each prefix: what remains is open."""
  opened, answers = [], []
  for token in tokens:
    opened.append(token)
    if token >= 8:
      assert opened[-2:-1] == [token - 8], 'a bracket closes another one'
      opened = opened[:-2]
    assert len(opened) <= 10
    answers.append(2 + opened[-1] if opened else 1)
  return answers


SOLVED = {
    'formal_parity': _parity, 'modular_arithmetic': _arithmetic,
    'modular_arithmetic_brackets': _brackets,
    's3_words': lambda t: _words(S3, S3, t),
    's5_words': lambda t: _words(S5, S5, t),
    's5_swaps': lambda t: _words(_moving(2), S5, t),
    's5_cycles': lambda t: _words(_moving(2, 3), S5, t),
    'a5_words': lambda t: _words(A5, A5, t),
    'even_pairs': _even_pairs, 'cycle_navigation': _cycle,
    'missing_duplicate': _missing, 'bucket_sort': _sort, 'dyck': _dyck}


def _scored(name, answers):
  """Returns the answers in val, test and longer tests."""
  last = name in ('s3_words', 's5_words', 's5_swaps', 's5_cycles', 'a5_words',
                  'dyck')
  return [0] * (len(answers) - 1) + answers[-1:] if last else answers


@pytest.mark.parametrize('count', [
    300, pytest.param(10_000, marks=pytest.mark.full)])
@pytest.mark.parametrize('name', SOLVED)
def test_answers_are_those_of_plain_python(name, count):
  task, splits = tasks.get(name), _splits(name, count)
  symbols, classes = set(), set()
  for tokens, answers in _pairs(splits['train'], count):
    assert answers == SOLVED[name](tokens)
    symbols |= set(tokens)
    classes |= set(answers) - {0}
  assert symbols <= set(range(task.vocab_size - 1))
  assert max(symbols) == task.vocab_size - 2
  assert classes == set(range(1, task.num_classes + 1))
  for tokens, answers in _pairs(splits['test'], 50):
    assert answers == _scored(name, SOLVED[name](tokens))


@pytest.mark.parametrize('name', SOLVED)
def test_longer_sequences_have_the_asked_lengths_and_right_answers(name):
  made = probes.generate_longer(probes.VARIANTS[name], 150, 90)
  lengths_N = np.diff(made.offsets)[made.pairs[:, 0]]
  assert (lengths_N.min(), lengths_N.max()) == (90, 150)
  for tokens, answers in _pairs(made, 20):
    assert answers == _scored(name, SOLVED[name](tokens))
  made = probes.generate_longer(probes.VARIANTS[name], 200, 200)
  assert set(np.diff(made.offsets)) == {200}


def _even(found_N, expected_N):
  """Asserts that counts differ from their means by at most 5 deviations."""
  assert np.all(np.abs(found_N - expected_N) < 5 * np.sqrt(expected_N) + 1)


@pytest.mark.parametrize('name, shortest, step', [
    ('formal_parity', 3, 1), ('modular_arithmetic', 4, 2),
    ('modular_arithmetic_brackets', 3, 1), ('even_pairs', 1, 1),
    ('cycle_navigation', 1, 1), ('missing_duplicate', 2, 1),
    ('bucket_sort', 2, 2), ('dyck', 2, 1)])
def test_lengths_are_uniform(name, shortest, step):
  variant = probes.VARIANTS[name]
  lengths_N = variant.lengths(
      np.random.default_rng(0),
      dataclasses.replace(variant.train[0], count=20_000))
  possible = np.arange(shortest, variant.length + 1, step)
  assert set(lengths_N) == set(possible)
  counts = np.bincount(lengths_N)[possible]
  _even(counts, np.full(len(possible), 20_000 / len(possible)))


@pytest.mark.parametrize('name', [
    'formal_parity', 's3_words', 's5_words', 's5_cycles', 'a5_words',
    'missing_duplicate'])
def test_classes_at_the_end_are_balanced(name):
  classes = tasks.get(name).num_classes
  _, found = questions.asked(_splits(name, 6000)['test'])
  _even(np.bincount(found, minlength=classes), np.full(classes, 6000 / classes))


def test_swaps_alone_reach_half_of_the_permutations_at_a_length():
  for tokens, answers in _pairs(_splits('s5_swaps')['test'], 300):
    assert len(tokens) % 2 == 0 and S5[answers[-1] - 1] in A5


@pytest.mark.parametrize('length, lefts', [(5, 1), (9, 5), (13, 9)])
def test_brackets_are_split_uniformly_and_with_both_signs(length, lefts):
  made = probes.generate_longer(
      probes.VARIANTS['modular_arithmetic_brackets'], length + 1, length + 1)
  texts = [_expression(tokens) for tokens, _ in _pairs(made, 1000)]
  left = np.array([_end(text, 1) - 1 for text in texts])
  _even(np.bincount(left)[1:], np.full(lefts, 1000 / lefts))
  signs = [text[_end(text, 1)] for text in texts]
  _even(np.array([signs.count('+'), signs.count('-')]), np.full(2, 500.))


def test_brackets_open_and_close_with_equal_chance():
  opens, types = [], []
  for tokens, _ in _pairs(_splits('dyck', 2000)['train'], 2000):
    depth = 0
    for token in tokens:
      if token < 8:
        types.append(token)
      if 0 < depth < 10:
        opens.append(token < 8)
      depth += 1 if token < 8 else -1
  _even(np.bincount(opens), np.full(2, len(opens) / 2))
  _even(np.bincount(types), np.full(8, len(types) / 8))


def test_brackets_are_nested_as_deep_as_the_language_permits():
  made = probes.generate_longer(probes.VARIANTS['dyck'], 200, 200)
  depths = [itertools.accumulate(1 if token < 8 else -1 for token in tokens)
            for tokens, _ in _pairs(made, 100)]
  assert max(map(max, depths)) == 10


def test_each_bit_is_hidden_as_often_as_the_others():
  made = probes.generate_longer(probes.VARIANTS['missing_duplicate'], 20, 20)
  hidden = [tokens.index(regular.MISSING) for tokens, _ in _pairs(made, 1000)]
  _even(np.bincount(hidden), np.full(20, 50.))


def test_operators_and_numbers_are_uniform():
  made = probes.generate_longer(
      probes.VARIANTS['modular_arithmetic'], 40, 40)
  counts = np.zeros(9, int)
  for tokens, _ in _pairs(made, 1000):
    counts += np.bincount(tokens, minlength=9)
  _even(counts[:5], np.full(5, 4000.))
  _even(counts[5:8], np.full(3, 19_000 / 3))
  assert counts[8] == 1000


def test_a_length_that_no_sequence_has_is_refused():
  for name, length in (('modular_arithmetic', 41), ('bucket_sort', 1),
                       ('modular_arithmetic_brackets', 1)):
    with pytest.raises(UserError, match=f'{length} tokens'):
      probes.generate_longer(probes.VARIANTS[name], length, length)
  variant = probes.VARIANTS['modular_arithmetic']
  assert set(variant.lengths(np.random.default_rng(0), Part(50, 41))) == {40}


@pytest.mark.parametrize('rule, name', [
    ('last_tokens', 'modular_arithmetic'), ('last_tokens', 'dyck'),
    ('place', 's5_swaps'), ('place', 'bucket_sort')])
def test_rules_that_look_up_train(rule, name):
  """Counts classes again in a dictionary."""
  splits, counts = _splits(name), {}

  def hints(split):
    for tokens, answers in _pairs(splits[split], 300):
      for at, answer in enumerate(answers):
        if answer:
          yield (tuple(tokens[max(at - 2, 0):at + 1])
                 if rule == 'last_tokens' else at), answer
  for hint, answer in hints('train'):
    counts.setdefault(hint, [0] * 130)[answer] += 1
  right = [hint in counts and answer == counts[hint].index(max(counts[hint]))
           for hint, answer in hints('test')]
  found = getattr(questions, rule)(splits['train'], splits['test'])
  assert found.tolist() == right
  assert 0 < np.mean(right) < 1


def test_the_rule_of_equal_shares():
  splits = _splits('bucket_sort')
  right = [answers[40 + i] == 1 + i // 8 for _, answers in _pairs(
      splits['test'], 300) for i in range(40)]
  found = regular.by_share(splits['train'], splits['test'])
  assert found.tolist() == right
