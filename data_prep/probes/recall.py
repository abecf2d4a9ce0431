"""Recall, lookup and copying: something earlier in the sequence is asked for.

`mqar` is multi-query associative recall (Arora et al. 2023, arXiv 2312.04927,
section 3.1). Pairs of a key and a value come first, then the keys again. The
answer at a key is its value. In the paper keys return after gaps, most of them
short. Here 32 pairs leave exactly 32 slots, so the gaps hardly vary.
`mqar_zoology` has the sizes of the paper's later code
(github.com/HazyResearch/zoology, commit d88d6f5,
`experiments/mqar_example_configs/original_mqar_configs.py`). `mqar_forgetting`
and `mqar_compositional` are small forms of `data/forgetting_mqar.py` and
`data/compositional_mqar.py` there.

`phonebook` is a small form of the phone book of Jelassi et al. 2024,
arXiv 2402.01032, section 4.2. Entries of a name and a number come first, then
one of the names again. Each digit of its number is asked for at the token
before it, so a model gets the earlier digits.

`selective_copying` is the task of Gu and Dao 2023, arXiv 2312.00752, section
4.1.1: symbols among noise are asked for in their order. `copying` is the
copying memory task of Jing et al. 2017, arXiv 1612.05231, section 4.1, with the
lengths of github.com/NicolasZucchet/minimal-LRU (20 symbols and a pause of 5).
There a symbol is a vector of 7 bits; here it is one of 8 codes. A mechanism
needs no content for it, only memory.
"""

import numpy as np

from lra.data_prep.content import Split
from lra.data_prep.probes.questions import asked, questions
from lra.data_prep.probes.variant import Part, Variant, same_length

# Exponent of the power law by which keys take slots; Arora et al., section 3.1.
_EARLY = 0.01
# Among so many choices, `sample` draws anew instead of sorting all of them.
_MANY = 500
# Codes of copying: noise, the sign or the place of an answer, then symbols.
NOISE, ASK, SYMBOLS = 0, 1, 2
# Codes of `phonebook`: blank, the question, digits, then letters.
BLANK, ASKED, DIGITS, LETTERS = 0, 1, 2, 12
# Letters of a name, and digits of a number.
NAME, NUMBER = 2, 4


def draw_recall(rng, lengths_N, symbols, pairs, published=False):
  """Generates pairs of key and value, then each key again as a question.

  The sequence after the pairs has slots of two tokens. Keys take slots at
  random, early slots more often. If there are more slots than keys, later slots
  are mostly blank, as in Arora et al. `mqar` has as many slots as keys, so all
  are filled; there an early key is likelier in an early slot.

  Codes: 0 is blank, those below `symbols / 2` are keys, the others are values.
  The first value is class 0. If `published`, random codes replace blanks and
  code c is class c, as in the released code.
  """
  keys, values, length = _pairs(rng, lengths_N, symbols, pairs)
  half = symbols // 2
  tokens, answers = _ask(rng, length, _interleaved(keys, values),
                         keys[:, :, None], values - half)
  if published:
    answers[answers > 0] += half
    junk = rng.integers(0, symbols, tokens.shape).astype(tokens.dtype)
    tokens = np.where(tokens == 0, junk, tokens)
  return tokens, answers


def draw_forgetting(rng, lengths_N, symbols, pairs, updates):
  """Generates recall in which `updates` random keys get another value.

  After all pairs, these keys come again with their new values, which are then
  their answers.
  """
  keys, values, length = _pairs(rng, lengths_N, symbols, pairs)
  half = symbols // 2
  changed = sample(rng, len(keys), pairs, updates)
  # Adding 1 ... half - 1 to a value, modulo half, gives any other value.
  new = half + (np.take_along_axis(values, changed, 1) - half + rng.integers(
      1, half, changed.shape)) % half
  context = _interleaved(
      np.concatenate([keys, np.take_along_axis(keys, changed, 1)], 1),
      np.concatenate([values, new], 1))
  np.put_along_axis(values, changed, new, 1)
  return _ask(rng, length, context, keys[:, :, None], values - half)


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
  return _ask(rng, length, context, keys, values)


def _pairs(rng, lengths_N, symbols, pairs):
  # Different keys and different values, [N, pairs], and the length.
  count, length = same_length(lengths_N)
  half = symbols // 2
  keys = 1 + sample(rng, count, half - 1, pairs)
  return keys, half + sample(rng, count, half, pairs), length


def _interleaved(keys, values):
  return np.stack([keys, values], 2).reshape(len(keys), -1)


def _ask(rng, length, context, keys_NxPxK, classes_NxP):
  """Returns the context, then all keys in random slots, with their classes."""
  count, begin = context.shape
  pairs, size = keys_NxPxK.shape[1:]
  slots = (length - begin) // (size + 1)  # each ends in a blank
  tokens = np.zeros((count, length), np.uint16)
  answers = np.zeros((count, length), tokens.dtype)
  tokens[:, :begin] = context
  early = _EARLY * np.arange(1, slots + 1) ** (_EARLY - 1)
  places = begin + (size + 1) * sample(rng, count, slots, pairs, early)
  for i in range(size):
    np.put_along_axis(tokens, places + i, keys_NxPxK[:, :, i], 1)
  np.put_along_axis(answers, places + size - 1, classes_NxP + 1, 1)
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
  # Draws until no number is equal to an earlier one of its row. All sequences
  # of different numbers have the same chance.
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


def zoology() -> Variant:
  """Returns `mqar_zoology`; two of its tests are longer than any training."""
  def part(count, length, pairs):
    return Part(count, length, sizes={'pairs': pairs})

  tests = {f'{length}/{pairs}': part(1000, length, pairs) for length, pairs in (
      (64, 4), (64, 8), (64, 16), (128, 32), (256, 64), (512, 128),
      (1024, 256))}
  train = (part(100_000, 64, 4), part(20_000, 128, 8), part(20_000, 256, 16),
           part(20_000, 256, 32), part(20_000, 256, 64))
  scored = tuple(test for test in tests.values() if test.length <= 256)
  return Variant(
      draw_recall, dict(symbols=8192, published=True), train, scored, scored,
      longer=lambda length: {'pairs': length // 4}, tests=tests,
      rules={'first value': (
          first_value, 'always answers with the first value of the sequence')})


def draw_phonebook(rng, lengths_N, letters):
  """Generates entries, then a question for one of them.

  Blanks come first if the length is no multiple of an entry's length.
  """
  count, length = same_length(lengths_N)
  size, asked = NAME + NUMBER, NAME + NUMBER  # `ASKED` and all but one digit
  entries = (length - asked) // size
  names = sample(rng, count, letters**NAME, entries)
  names = LETTERS + np.stack([names // letters, names % letters], 2)
  numbers = rng.integers(0, 10, (count, entries, NUMBER))
  book = np.concatenate([names, DIGITS + numbers], 2).reshape(count, -1)
  row, entry = np.arange(count), rng.integers(0, entries, count)
  name, number = names[row, entry], numbers[row, entry]
  tokens = np.full((count, length), BLANK, np.uint8)
  tokens[:, -asked - book.shape[1]:-asked] = book
  tokens[:, -asked] = ASKED
  tokens[:, -asked + 1:-NUMBER + 1] = name
  tokens[:, -NUMBER + 1:] = DIGITS + number[:, :-1]
  answers = np.zeros((count, length), np.uint8)
  answers[:, -NUMBER:] = number + 1
  return tokens, answers


def draw_selective(rng, lengths_N, symbols, copied):
  """Generates `copied` symbols among noise, then a question for each symbol."""
  tokens, answers, wanted = _to_copy(rng, lengths_N, symbols, copied)
  places = np.sort(
      sample(rng, len(tokens), tokens.shape[1] - copied, copied), 1)
  tokens[:, -copied:] = ASK
  np.put_along_axis(tokens, places, SYMBOLS + wanted, 1)
  return tokens, answers


def draw_copying(rng, lengths_N, symbols, pause):
  """Generates symbols, a pause, the sign, then a question for each symbol.

  A pause is longer by one if the length has another parity.
  """
  copied = (int(lengths_N[0]) - pause - 1) // 2
  tokens, answers, wanted = _to_copy(rng, lengths_N, symbols, copied)
  tokens[:, :copied] = SYMBOLS + wanted
  tokens[:, -copied - 1] = ASK
  return tokens, answers


def _to_copy(rng, lengths_N, symbols, copied):
  # Noise, the answers at the end, and the symbols, [N, copied].
  wanted = rng.integers(0, symbols, (len(lengths_N), copied))
  tokens = np.full(same_length(lengths_N), NOISE, np.uint8)
  answers = np.zeros_like(tokens)
  answers[:, -copied:] = wanted + 1
  return tokens, answers, wanted


def first_value(train: Split, test: Split, first: int = 0) -> np.ndarray:
  """Guesses the first value of each sequence; code `first` is class 0."""
  del train
  example, _, wanted = asked(test)
  begin = test.offsets[test.pairs[example, 0]]
  return test.tokens[begin + 1].astype(np.int64) - first == wanted


def by_place(train: Split, test: Split, pairs: int, first: int) -> np.ndarray:
  """Guesses the value of the pair that train asks for most at this position.

  Questions of `mqar` about early pairs tend to come early, so the position of a
  question hints at its pair. Code `first` is class 0.
  """
  def recalled(split):
    sequences, example, place, wanted = questions(split)
    return (sequences[:, 1:2 * pairs:2] - first)[example], place, wanted

  values, place, wanted = recalled(train)
  asked_of = np.zeros((1 + place.max(), pairs), np.int64)
  np.add.at(asked_of, (place, (values == wanted[:, None]).argmax(1)), 1)
  values, place, wanted = recalled(test)
  pair = asked_of.argmax(1)[place]
  return np.take_along_axis(values, pair[:, None], 1)[:, 0] == wanted


def value_after(train: Split, test: Split, first: bool, least: int,
                most: int = 1 << 16) -> np.ndarray:
  """Guesses the value that followed this token, the first or last time.

  Codes from `least` to below `most` are values. The first time gives the first
  meaning of a key of `mqar_forgetting`. The last time gives a key of
  `mqar_compositional` with this second part: right for one of `grid`.
  """
  del train
  sequences, example, place, wanted = questions(test)
  seen, row = sequences[example], np.arange(len(place))
  next_one = seen[:, 1:]
  fits = (seen[:, :-1] == seen[row, place][:, None]) & (
      next_one >= least) & (next_one < most)
  fits &= np.arange(next_one.shape[1]) < place[:, None] - 1
  earlier = fits.argmax(1) if first else (
      fits.shape[1] - 1 - fits[:, ::-1].argmax(1))
  return fits.any(1) & (next_one[row, earlier] - least == wanted)
