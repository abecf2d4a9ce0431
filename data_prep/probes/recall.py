"""Associative recall: keys are asked for their values.

`mqar` is multi-query associative recall (Arora et al. 2023, arXiv 2312.04927,
section 3.1). Pairs of a key and a value come first, then the keys again. The
answer at a key is its value. In the paper keys return after gaps, most of them
short. Here 32 pairs leave exactly 32 slots, so the gaps hardly vary.

`mqar_zoology` has the sizes of the paper's later code
(github.com/HazyResearch/zoology, commit d88d6f5,
`experiments/mqar_example_configs/original_mqar_configs.py`). Two more tasks are
small forms of tasks there, `data/forgetting_mqar.py` and
`data/compositional_mqar.py`:

* `mqar_forgetting`: some keys get a second value, which is then their answer.
* `mqar_compositional`: a key has two parts, and neither part alone determines
  the value.
"""

import numpy as np

from lra.data_prep.content import Split
from lra.data_prep.probes.questions import asked, questions
from lra.data_prep.probes.variant import (
  Part,
  Variant,
  of_length,
  same_length,
  unsigned,
)

# Exponent of the power law by which keys take slots; Arora et al., section 3.1.
_EARLY = 0.01
# Among so many choices, `sample` draws anew instead of sorting all of them.
_MANY = 500


def draw_recall(rng, lengths_N, symbols, pairs, published=False):
  """Generates pairs of key and value, then each key again as a question.

  The sequence after the pairs has slots of two tokens. Keys take slots at
  random, early slots more often. If there are more slots than keys, later slots
  are mostly blank, as in Arora et al. `VARIANTS['mqar']` has as many slots as
  keys, so all are filled; there an early key is likelier in an early slot.

  Codes: 0 is blank, those below `symbols / 2` are keys, the others are values.
  The first value is class 0. The result is that of `Variant.draw`.

  Args:
    rng, lengths_N: as in `Variant.draw`.
    symbols, pairs: numbers of codes, and of pairs in a sequence.
    published: whether random codes replace blanks and all codes are classes, as
      in the released code. Code c is then class c.
  """
  count, length = same_length(lengths_N)
  half = symbols // 2
  keys = 1 + sample(rng, count, half - 1, pairs)
  values = half + sample(rng, count, half, pairs)
  context = np.stack([keys, values], 2).reshape(count, -1)
  tokens, answers = _ask(
      rng, length, context, keys[:, :, None], values - half, symbols)
  if published:
    answers[answers > 0] += half
    junk = rng.integers(0, symbols, tokens.shape).astype(tokens.dtype)
    tokens = np.where(tokens == 0, junk, tokens)
  return tokens, answers


def draw_forgetting(rng, lengths_N, symbols, pairs, updates):
  """Generates recall in which `updates` random keys get another value.

  After all pairs, these keys come again with their new values. The questions
  are as in `draw_recall`, and so are the codes.
  """
  count, length = same_length(lengths_N)
  half = symbols // 2
  keys = 1 + sample(rng, count, half - 1, pairs)
  values = half + sample(rng, count, half, pairs)
  changed = sample(rng, count, pairs, updates)
  # Adding 1 ... half - 1 to a value, modulo half, gives any other value.
  new = half + (np.take_along_axis(values, changed, 1) - half + rng.integers(
      1, half, changed.shape)) % half
  context = np.stack([
      np.concatenate([keys, np.take_along_axis(keys, changed, 1)], 1),
      np.concatenate([values, new], 1)], 2).reshape(count, -1)
  np.put_along_axis(values, changed, new, 1)
  return _ask(rng, length, context, keys[:, :, None], values - half, symbols)


def draw_compositional(rng, lengths_N, symbols, grid):
  """Generates recall with keys of two parts: `grid` squared keys.

  Each of `grid` first parts occurs with each of `grid` second parts. Codes: 0
  is blank, then a third of the codes each are first parts, second parts and
  values. The question is at the second part. The first value is class 0.
  """
  count, length = same_length(lengths_N)
  third = symbols // 3
  firsts = 1 + sample(rng, count, third - 1, grid)
  seconds = third + sample(rng, count, third, grid)
  number = rng.permuted(np.tile(np.arange(grid**2), (count, 1)), axis=1)
  keys = np.stack([np.take_along_axis(firsts, number // grid, 1),
                   np.take_along_axis(seconds, number % grid, 1)], 2)
  values = sample(rng, count, symbols - 2 * third, grid**2)
  context = np.concatenate(
      [keys, 2 * third + values[:, :, None]], 2).reshape(count, -1)
  return _ask(rng, length, context, keys, values, symbols)


def _ask(rng, length, context, keys_NxPxK, classes_NxP, symbols):
  """Returns the context, then all keys in random slots, with their classes.

  A slot has one token more than a key, which is blank.
  """
  count, begin = context.shape
  pairs, size = keys_NxPxK.shape[1:]
  slots = (length - begin) // (size + 1)
  tokens = np.zeros((count, length), unsigned(symbols))
  answers = np.zeros((count, length), tokens.dtype)
  tokens[:, :begin] = context
  early = _EARLY * np.arange(1, slots + 1) ** (_EARLY - 1)
  places = begin + (size + 1) * sample(rng, count, slots, pairs, early)
  for i in range(size):
    np.put_along_axis(
        tokens, places + i, keys_NxPxK[:, :, i].astype(tokens.dtype), 1)
  np.put_along_axis(
      answers, places + size - 1, (classes_NxP + 1).astype(answers.dtype), 1)
  return tokens, answers


def sample(rng, count, choices, wanted, weights=None):
  """Samples `wanted` different numbers below `choices`, [count, wanted].

  `weights` are the relative chances of the numbers. Taking the largest sums of
  log weight and Gumbel noise is sampling without replacement. If there are many
  choices of equal chance, repeated numbers are drawn anew instead.
  """
  if weights is None and choices >= _MANY:
    return _redraw(rng, count, choices, wanted)
  noise = rng.gumbel(size=(count, choices))
  if weights is not None:
    noise += np.log(weights)
  return np.argsort(-noise, axis=1)[:, :wanted]


def _redraw(rng, count, choices, wanted):
  """Draws numbers until none is equal to an earlier number of its row.

  The procedure treats all numbers below `choices` alike, so all sequences of
  different numbers have the same chance.
  """
  drawn = rng.integers(0, choices, (count, wanted))
  rows = np.arange(count)
  while len(rows):
    some = drawn[rows]
    order = np.argsort(some, axis=1, kind='stable')
    ranked = np.take_along_axis(some, order, 1)
    again = np.zeros(some.shape, bool)
    np.put_along_axis(
        again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], 1)
    some[again] = rng.integers(0, choices, again.sum())
    drawn[rows] = some
    rows = rows[again.any(1)]
  return drawn


# (length, pairs) of the tests of `mqar_zoology` there; two are longer than any
# training sequence.
_ZOOLOGY_TESTS = ((64, 4), (64, 8), (64, 16), (128, 32), (256, 64), (512, 128),
                  (1024, 256))


def _zoology():
  def part(count, length, pairs):
    return Part(count, length, sizes={'pairs': pairs})

  tests = {f'{length}/{pairs}': part(1000, length, pairs)
           for length, pairs in _ZOOLOGY_TESTS}
  train = (part(100_000, 64, 4), part(20_000, 128, 8), part(20_000, 256, 16),
           part(20_000, 256, 32), part(20_000, 256, 64))
  scored = tuple(test for test in tests.values() if test.length <= 256)
  return Variant(
      draw_recall, dict(symbols=8192, published=True), train, scored, scored,
      longer=lambda length: {'pairs': length // 4}, tests=tests)


VARIANTS = {
    'mqar': of_length(draw_recall, 128, symbols=128, pairs=32),
    'mqar_zoology': _zoology(),
    'mqar_forgetting': of_length(
        draw_forgetting, 96, symbols=128, pairs=16, updates=8),
    'mqar_compositional': of_length(
        draw_compositional, 96, symbols=192, grid=4)}


def any_value(train: Split, test: Split) -> np.ndarray:
  """Guesses the first value of each sequence of `mqar`."""
  del train
  values, wanted, _ = _recall(test)
  return values[:, 0] == wanted


def by_place(train: Split, test: Split) -> np.ndarray:
  """Guesses the value of the pair that train asks for most at this position.

  Questions of `mqar` about early pairs tend to come early, so the position of a
  question hints at its pair.
  """
  values, wanted, place = _recall(train)
  length = VARIANTS['mqar'].length
  asked_of = np.zeros((length, values.shape[1]), np.int64)
  np.add.at(asked_of, (place, (values == wanted[:, None]).argmax(1)), 1)
  values, wanted, place = _recall(test)
  pair = asked_of.argmax(1)[place]
  return np.take_along_axis(values, pair[:, None], 1)[:, 0] == wanted


def _recall(split):
  """Returns three arrays about the questions of `mqar`.

  Returns:
    All values of the question's sequence, as classes, int64 [Q, pairs]; the
    right class and the place of the question, int64 [Q] each.
  """
  sizes = VARIANTS['mqar'].sizes
  sequences, example, place, wanted = questions(split)
  values = sequences[:, 1:2 * sizes['pairs']:2] - sizes['symbols'] // 2
  return values[example], wanted, place


def first_value(train: Split, test: Split) -> np.ndarray:
  """Guesses the first value of each sequence of `mqar_zoology`."""
  del train
  example, wanted = asked(test)
  begin = test.offsets[test.pairs[example, 0]]
  return test.tokens[begin + 1] == wanted


def first_meaning(train: Split, test: Split) -> np.ndarray:
  """Guesses the first value of the key, in `mqar_forgetting`."""
  return _value_after(train, test, first=True, least=64)


def by_second_part(train: Split, test: Split) -> np.ndarray:
  """Guesses the last value after the key's second part.

  In `mqar_compositional` this is right for one first part in `grid`.
  """
  return _value_after(train, test, first=False, least=128)


def _value_after(train, test, first, least):
  """Guesses the value that followed this token, the first or last time."""
  del train
  sequences, example, place, wanted = questions(test)
  seen = sequences[example]
  same = seen == seen[np.arange(len(place)), place][:, None]
  same &= np.arange(seen.shape[1]) < place[:, None]
  same[:, :-1] &= seen[:, 1:] >= least  # a value follows
  if first:
    earlier = same.argmax(1)
  else:
    earlier = seen.shape[1] - 1 - same[:, ::-1].argmax(1)
  return seen[np.arange(len(place)), earlier + 1] - least == wanted
