"""Solves the probes again in plain Python, one example at a time.

MAD's tasks are in `test_mad`.
"""

import dataclasses
import functools
import itertools
import re

import numpy as np
import pytest

from lra import data_prep
from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep import baselines, describe, probes
from lra.data_prep.content import fingerprint
from lra.data_prep.probes import (
  automata,
  languages,
  questions,
  recall,
  variant,
)
from tests.helpers import documents
from tests.helpers.data_files import pairs

# MAD's harder settings change numbers of its tasks only.
PROBES = [name for name in probes.VARIANTS if name in tasks.TASKS]

S2, S3, S5 = (list(itertools.permutations(range(n))) for n in (2, 3, 5))
# The determinant of a matrix with one 1 in each row is the sign.
A5 = [p for p in S5 if round(np.linalg.det(np.eye(5)[list(p)])) == 1]


@functools.cache
def splits(name, count=300):
  """Returns the splits of a variant with `count` sequences in each part."""
  whole = probes.VARIANTS[name]
  return probes.generate(dataclasses.replace(whole, **{
      split: tuple(dataclasses.replace(part, count=min(part.count, count))
                   for part in getattr(whole, split))
      for split in ('train', 'val', 'test')})).splits


def longer(name, length, shortest=None):
  return probes.generate_longer(
      probes.VARIANTS[name], length, shortest or length)


def even(found_N, expected_N):
  """Asserts that counts differ from their means by at most 5 deviations."""
  assert np.all(np.abs(found_N - expected_N) < 5 * np.sqrt(expected_N) + 1)


# Each function checks the tokens of a sequence and returns its answers: class +
# 1, or 0 if nothing is asked for at a token.


def _last(answer, tokens):
  return [0] * (len(tokens) - 1) + [answer + 1]


def _expression(tokens):
  text = ''.join(languages.SYMBOLS[t] for t in tokens)
  assert text.endswith('=')
  return text[:-1]


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


def _missing(tokens):
  half, odd = divmod(len(tokens), 2)
  assert tokens[2 * half:] == [languages.FILLING] * odd
  hidden = tokens.index(languages.MISSING)
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


def _recall(tokens):
  known = dict(zip(tokens[0:64:2], tokens[1:64:2], strict=True))
  assert len(known) == len(set(known.values())) == 32
  assert all(0 < key < 64 <= value < 128 for key, value in known.items())
  queries = tokens[64::2]
  assert sorted(queries) == sorted(known) and not any(tokens[65::2])
  return 64 * [0] + [a for key in queries for a in (known[key] - 63, 0)]


def _forgetting(tokens):
  values, first = {}, {}
  for i in range(0, 48, 2):
    key, value = tokens[i:i + 2]
    assert 0 < key < 64 <= value < 128
    assert i < 32 or values[key] == first[key] != value
    first.setdefault(key, value)
    values[key] = value
  assert len(values) == 16 == len(set(first.values()))
  assert sorted(filter(None, tokens[48::2])) == sorted(values)
  assert not any(tokens[49::2])
  return 48 * [0] + [values[t] - 63 if t else 0 for t in tokens[48:]]


def _compositional(tokens):
  values = {tuple(tokens[i:i + 2]): tokens[i + 2] for i in range(0, 48, 3)}
  firsts, seconds = map(set, zip(*values, strict=True))
  assert len(firsts) == len(seconds) == 4
  assert len(values) == len(set(values.values())) == 16
  assert all(0 < f < 64 for f in firsts)
  assert all(64 <= s < 128 for s in seconds)
  assert all(128 <= v < 192 for v in values.values())
  asked = [tuple(tokens[t:t + 2]) for t in range(48, 96, 3)]
  assert set(asked) == set(values) and not any(tokens[50::3])
  return 48 * [0] + [a for key in asked for a in (0, values[key] - 127, 0)]


def _phonebook(tokens):
  book = {}
  for i in range(0, 96, 6):
    name, number = tuple(tokens[i:i + 2]), tokens[i + 2:i + 6]
    assert min(name) >= 12 and all(2 <= d < 12 for d in number)
    assert book.setdefault(name, number) is number
  assert tokens[96] == recall.ASKED
  number = book[tuple(tokens[97:99])]
  assert tokens[99:] == number[:3]
  return 98 * [0] + [d - 1 for d in number]


def _selective(tokens):
  assert tokens[-8:] == 8 * [recall.ASK]
  symbols = [t for t in tokens[:-8] if t != recall.NOISE]
  assert len(symbols) == 8 and min(symbols) >= recall.SYMBOLS
  return 56 * [0] + [t - recall.SYMBOLS + 1 for t in symbols]


def _copying(tokens):
  assert all(2 <= token < 10 for token in tokens[:20])
  assert tokens[20:] == 5 * [recall.NOISE] + [recall.ASK] + 20 * [recall.NOISE]
  return 26 * [0] + [token - 1 for token in tokens[:20]]


SOLVED = {
    'parity': lambda t: [1 + s % 2 for s in itertools.accumulate(t)],
    'permutations_3': lambda t: _words(S3, S3, t),
    'permutations_5': lambda t: [
        1 + S5[a - 1][0] for a in _words(S5, S5, t)],
    's3_words': lambda t: _words(S3, S3, t),
    's5_words': lambda t: _words(S5, S5, t),
    's5_swaps': lambda t: _words(_moving(2), S5, t),
    's5_cycles': lambda t: _words(_moving(2, 3), S5, t),
    'a5_words': lambda t: _words(A5, A5, t),
    'formal_parity': lambda t: _last(t.count(1) % 2, t),
    'modular_arithmetic': _arithmetic,
    'modular_arithmetic_brackets': _brackets,
    'even_pairs': lambda t: _last(
        sum(a != b for a, b in itertools.pairwise(t)) % 2, t),
    'cycle_navigation': lambda t: _last((t.count(2) - t.count(0)) % 5, t),
    'missing_duplicate': _missing, 'bucket_sort': _sort, 'dyck': _dyck,
    'mqar': _recall, 'mqar_forgetting': _forgetting,
    'mqar_compositional': _compositional, 'phonebook': _phonebook,
    'selective_copying': _selective, 'copying': _copying}
# Those whose val, test and longer tests have one question, at the end.
AT_END = ('parity', 'permutations_3', 'permutations_5', 's3_words', 's5_words',
          's5_swaps', 's5_cycles', 'a5_words', 'dyck')
FORMAL = list(SOLVED)[3:16]  # those of any length


def _scored(name, answers):
  """Returns the answers in val, test and longer tests."""
  return [0] * (len(answers) - 1) + answers[-1:] if name in AT_END else answers


@pytest.mark.parametrize('name', SOLVED)
def test_answers_are_those_of_plain_python(name):
  task, made = tasks.get(name), splits(name)
  classes = set()
  for tokens, answers in pairs(made['train']):
    assert answers == SOLVED[name](tokens)
    assert max(tokens) <= task.vocab_size - 2
    classes |= set(answers) - {0}
  assert classes == set(range(1, task.num_classes + 1))
  for split in ('val', 'test'):
    for tokens, answers in pairs(made[split], 50):
      assert answers == _scored(name, SOLVED[name](tokens))


@pytest.mark.parametrize('name', FORMAL)
def test_longer_sequences_have_the_asked_lengths_and_right_answers(name):
  made = longer(name, 150, 90)
  lengths_N = np.diff(made.offsets)[made.pairs[:, 0]]
  assert (lengths_N.min(), lengths_N.max()) == (90, 150)
  for tokens, answers in pairs(made, 20):
    assert answers == _scored(name, SOLVED[name](tokens))
  assert set(np.diff(longer(name, 200).offsets)) == {200}


def test_zoologys_recall_is_a_dictionary_among_random_tokens():
  whole = probes.VARIANTS['mqar_zoology']
  for part in (*whole.train[:2], *whole.tests.values()):
    n = part.sizes['pairs']
    junk = set()
    made = whole.draw(np.random.default_rng(0), np.full(30, part.length),
                      **whole.sizes, **part.sizes)
    for tokens, answers in zip(*(of.tolist() for of in made), strict=True):
      known = dict(zip(tokens[0:2 * n:2], tokens[1:2 * n:2], strict=True))
      assert len(known) == len(set(known.values())) == n
      assert all(0 < k < 4096 <= v < 8192 for k, v in known.items())
      asked = [t for t, answer in enumerate(answers) if answer]
      assert sorted(tokens[t] for t in asked) == sorted(known)
      assert all(t >= 2 * n and t % 2 == 0 for t in asked)
      assert all(answers[t] == known[tokens[t]] + 1 for t in asked)
      junk |= set(tokens[2 * n + 1::2])
    assert max(junk) > 8000 and len(junk) > 300
  # The sizes are the published ones.
  assert [(p.length, p.sizes['pairs'], p.count) for p in whole.train] == [
      (64, 4, 100_000), (128, 8, 20_000), (256, 16, 20_000), (256, 32, 20_000),
      (256, 64, 20_000)]
  assert list(whole.tests) == [
      '64/4', '64/8', '64/16', '128/32', '256/64', '512/128', '1024/256']
  assert all(part.count == 1000 for part in whole.tests.values())


def test_a_named_test_has_its_own_sequences():
  whole = probes.VARIANTS['mqar_zoology']
  part = dataclasses.replace(whole.tests['512/128'], count=20)
  whole = dataclasses.replace(whole, tests={'one': part, 'other': part})
  one, same, other = (probes.generate_test(whole, name)
                      for name in ('one', 'one', 'other'))
  assert one.document(0) == same.document(0) != other.document(0)
  assert len(one) == 20 and (np.diff(one.offsets) == 512).all()


def test_words_follow_their_automaton():
  """Walks the automata, which the generator draws first from its stream."""
  count, sizes = 300, probes.VARIANTS['regbench_mini'].sizes
  target = automata._automata(
      np.random.default_rng(0), count,
      *(sizes[name] for name in ('letters', 'states', 'most')))
  legal, ends = 0, 0
  drawn = automata.draw_words(
      np.random.default_rng(0), np.full(count, 128), **sizes)
  for edges, tokens, answers in zip(
      target, *(of.tolist() for of in drawn), strict=True):
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


# The begin of each fingerprint of `splits`. Another one means other data, so
# that old scores are not comparable.
PINNED = dict(part.split('=') for part in '''
    mqar=2761909a mqar_zoology=09a0a89b mqar_forgetting=a6de7fed
    mqar_compositional=24e97532 phonebook=f3220ffc copying=21f5ae48
    selective_copying=72626192 regbench_mini=fb7af5c4 parity=72ebe86d
    permutations_3=af6c1adb permutations_5=845f7869 s3_words=ed8834d6
    s5_words=bf732305 s5_swaps=f4fd00dd s5_cycles=8217f93e a5_words=92ad8f9d
    formal_parity=4bb90556 modular_arithmetic=d241f3ee
    modular_arithmetic_brackets=dba7b5b7 even_pairs=ed18b589
    cycle_navigation=09b80d4c missing_duplicate=c306d341 bucket_sort=02a20999
    dyck=b2f4df63 mad_recall=9e560af5 mad_fuzzy_recall=1412e5fe
    mad_noisy_recall=a63b3de6 mad_copying=acf58143 mad_compression=5ae9449e
    mad_memorization=9bbab70e'''.split())


@pytest.mark.parametrize('name', PROBES)
def test_splits_differ_are_always_the_same_and_ask_as_the_task_says(name):
  one = splits(name)
  assert fingerprint(splits.__wrapped__(name))[:8] == PINNED[name]
  assert len({one[s].document(one[s].pairs[0, 0])
              for s in ('train', 'val', 'test')}) == 3
  numbers = np.bincount(questions.asked(one['test'])[0])
  if name not in ('mad_fuzzy_recall', 'mad_noisy_recall', 'mad_recall',
                  'mqar_zoology'):
    assert len(set(numbers)) == 1
  assert numbers.mean() == pytest.approx(tasks.get(name).answers, abs=0.5)


@pytest.mark.parametrize('name', [
    *(name if name in ('formal_parity', 'bucket_sort') else
      pytest.param(name, marks=pytest.mark.full) for name in PROBES)])
def test_the_page_has_the_share_of_test_strings_that_train_has(name):
  made = probes.generate(probes.VARIANTS[name]).splits
  train, test = ([made[split].document(i) for i in made[split].pairs[:, 0]]
                 for split in ('train', 'test'))
  known = set(train)
  shared = np.mean([one in known for one in test])
  row = re.search(rf'^\| `{name}` \| (\d+)% \|$',
                  documents.read('docs/tasks.md'), re.M)
  assert round(100 * shared) == int(row[1]) if row else shared == 0


@pytest.mark.parametrize('name, possible', [
    ('s5_swaps', 60), ('s5_words', 120), ('dyck', 9)])
def test_chance_is_among_the_classes_that_a_test_can_reach(name, possible):
  """An even number of swaps is an even permutation."""
  made = splits(name, 20_000)
  assert set(questions.chance(made['train'], made['test'])) == {1 / possible}


# How sequences are distributed.


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


def test_numbers_drawn_without_replacement_are_uniform():
  drawn = recall.sample(np.random.default_rng(0), 5000, 500, 100)
  assert all(len(set(row)) == 100 for row in drawn.tolist())
  for place in (0, 50, 99):
    even(np.bincount(drawn[:, place] // 50, minlength=10), np.full(10, 500.))


@pytest.mark.parametrize('name, shortest, step', [
    ('formal_parity', 3, 1), ('modular_arithmetic', 4, 2),
    ('modular_arithmetic_brackets', 3, 1), ('even_pairs', 1, 1),
    ('cycle_navigation', 1, 1), ('missing_duplicate', 2, 1),
    ('bucket_sort', 2, 2), ('dyck', 2, 1)])
def test_lengths_are_uniform(name, shortest, step):
  whole = probes.VARIANTS[name]
  lengths_N = whole.lengths(
      np.random.default_rng(0),
      dataclasses.replace(whole.train[0], count=20_000))
  possible = np.arange(shortest, whole.train[0].length + 1, step)
  assert set(lengths_N) == set(possible)
  even(np.bincount(lengths_N)[possible],
       np.full(len(possible), 20_000 / len(possible)))


def test_a_length_that_no_sequence_has_is_refused():
  for name, length in (('modular_arithmetic', 41), ('bucket_sort', 1),
                       ('modular_arithmetic_brackets', 1)):
    with pytest.raises(UserError, match=f'{length} tokens'):
      longer(name, length)
  assert set(probes.VARIANTS['modular_arithmetic'].lengths(
      np.random.default_rng(0), variant.Part(50, 41))) == {40}


# Each function guesses the class of each question of a sequence; other rules
# count in train.


def _same_token(tokens, t, answers):
  del answers
  return next((tokens[s + 1] - 2 for s in range(t - 2, -1, -1)
               if tokens[s] == tokens[t] and 2 <= tokens[s + 1] < 12), None)


def _known_pair(tokens, t, answers):
  known, last = set(), automata.END
  for s in range(t):
    if not answers[s]:
      known.add((last, tokens[s]))
    if answers[s] != 1:
      last = tokens[s]
  return int((last, tokens[t]) in known)


def _commonest(tokens, t, answers):
  del t, answers
  symbols = sorted(s for s in tokens if s >= recall.SYMBOLS)
  return max(symbols, key=symbols.count) - recall.SYMBOLS


GUESSES = {
    ('mqar', 'any value'): (lambda tokens, *_: tokens[1] - 64, 1 / 32),
    ('mqar_zoology', 'first value'): (lambda tokens, *_: tokens[1], 1 / 64),
    ('mqar_forgetting', 'first meaning'): (
        lambda tokens, t, _: tokens[tokens.index(tokens[t]) + 1] - 64, 1 / 2),
    ('mqar_compositional', 'second part'): (
        lambda tokens, t, _: tokens[46 - tokens[46:0:-3].index(tokens[t]) * 3
                                    + 1] - 128, 1 / 4),
    ('phonebook', 'same token'): (_same_token, 0.35),
    ('selective_copying', 'commonest symbol'): (_commonest, 0.3),
    ('regbench_mini', 'known pair'): (_known_pair, 0.75),
    ('bucket_sort', 'share'): (lambda tokens, t, _: (t - 40) // 8, 0.6)}


@pytest.mark.parametrize('name, rule', GUESSES)
def test_rules_that_look_at_the_sequence(name, rule):
  test, right = splits(name, 100)['test'], []
  # The last part, since parts may have different lengths.
  test = dataclasses.replace(test, pairs=test.pairs[-100:])
  guess, share = GUESSES[name, rule]
  for tokens, answers in pairs(test):
    right += [guess(tokens, t, answers) == answer - 1
              for t, answer in enumerate(answers) if answer]
  method, _ = probes.VARIANTS[name].rules[rule]
  found = method(splits(name, 300)['train'], test)
  assert found.tolist() == right
  assert np.mean(right) == pytest.approx(
      share, abs=1e-6 if share in (1 / 32, 1 / 64, 1 / 2, 1 / 4) else 0.2)


def _hint(rule, tokens, at):
  return tuple(tokens[max(at - 2, 0):at + 1]) if rule == 'last tokens' else at


@pytest.mark.parametrize('name, rule', [
    ('modular_arithmetic_brackets', 'last tokens'), ('dyck', 'last tokens'),
    ('s5_swaps', 'place'), ('bucket_sort', 'place'), ('mqar', 'place')])
def test_rules_that_look_up_train(name, rule):
  """Counts classes again in a dictionary; for `mqar`, the number of the pair.
  """
  def number(tokens, answer):
    return tokens[1:64:2].index(answer + 63) if name == 'mqar' else answer

  counts, right = {}, []
  for split in ('train', 'test'):
    for tokens, answers in pairs(splits(name)[split], 300):
      for at, answer in enumerate(answers):
        if answer:
          seen = counts.setdefault(_hint(rule, tokens, at), [0] * 130)
          if split == 'train':
            seen[number(tokens, answer)] += 1
          else:
            right.append(any(seen) and seen.index(max(seen)) == number(
                tokens, answer))
  method, _ = probes.VARIANTS[name].rules[rule]
  test = dataclasses.replace(
      splits(name)['test'], pairs=splits(name)['test'].pairs[:300])
  assert method(splits(name)['train'], test).tolist() == right
  assert 0 < np.mean(right) < 1


def test_nothing_is_stored_and_all_described(tmp_path, monkeypatch):
  part = variant.Part(300, 32)
  monkeypatch.setitem(probes.VARIANTS, 'parity', dataclasses.replace(
      probes.VARIANTS['parity'], train=(part,), test=(part,)))
  assert data_prep.prepare('parity', tmp_path) is None
  assert not list(tmp_path.iterdir())
  with pytest.raises(UserError, match='leave out --source'):
    data_prep.prepare('parity', tmp_path, tmp_path)
  content = data_prep.read('parity')
  text = describe.describe('parity', content)
  shares = re.findall(r'^  [01]: +([\d.]+) +([\d.]+) +([\d.]+)$', text, re.M)
  assert np.abs(np.float64(shares) - 50).max() < 10 and 'questions' in text
  quick = baselines.quick('parity', content.splits)
  assert quick['majority'] == pytest.approx(quick['chance'], abs=0.06)
