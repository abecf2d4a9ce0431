"""The six tasks of MAD (Poli et al. 2024, arXiv 2403.17844, section 3).

The tasks follow the released code (github.com/athms/mad-lab, commit 0f49a45,
`mad/data/instances.py`), with the settings of `lra.core.mad`. Class c is the
token with code c. In the recall tasks, training asks for the next token
everywhere (`everywhere`), while validation and test ask only for the values of
keys that occurred before.
"""

import numpy as np

from lra.core import mad
from lra.data_prep.probes.questions import commonest_answer
from lra.data_prep.probes.variant import Part, Variant, same_length

# Longest key and longest value of fuzzy recall, in tokens.
MOTIF = 3
_DICTIONARY_SEED = 12345


def draw_recall(rng, lengths_N, vocab, noise_symbols=0, noise=0.0,
                everywhere=False):
  """Generates pairs of key and value; a repeated key is asked for its value.

  Codes: keys, then as many values, then `noise_symbols`. Each sequence has its
  own values of keys; two keys may share a value. With the chance `noise`, a
  pair is two noise symbols instead, except for one pair. The key of the last
  pair is one of those before. An odd length ends with a key.
  """
  count, length = same_length(lengths_N)
  pairs, rows = length // 2 + 1, np.arange(count)
  known = vocab - noise_symbols
  half = known // 2
  value_NxK = rng.integers(half, known, (count, half))
  keys = rng.integers(0, half, (count, pairs))
  noisy = rng.random((count, pairs)) < noise
  noisy[rows, rng.integers(0, pairs, count)] = False
  noisy[:, -1] = False
  seen_NxK = np.zeros((count, half), bool)
  asked = np.zeros((count, 2 * pairs), bool)
  for p in range(pairs):
    if p == pairs - 1:
      keys[:, p] = np.argmax(rng.random((count, half)) * seen_NxK, 1)
    asked[:, 2 * p + 1] = seen_NxK[rows, keys[:, p]] & ~noisy[:, p]
    seen_NxK[rows, keys[:, p]] |= ~noisy[:, p]
  both = np.stack([keys, np.take_along_axis(value_NxK, keys, 1)], 2)
  if noise_symbols:
    junk = rng.integers(known, vocab, both.shape)
    both = np.where(noisy[:, :, None], junk, both)
  return _next(both.reshape(count, -1), asked, length, everywhere)


def draw_fuzzy(rng, lengths_N, vocab, everywhere=False):
  """Generates recall in which keys and values have one to `MOTIF` tokens.

  The tokens of a key differ from each other, and so do those of a value. One
  pair is the probe: it is put in at a random place, and its key is asked for at
  the end. Padding, the last code, fills the beginning. As in the released code,
  keys of validation and test have `MOTIF` tokens, and the probe is left out
  before the end if its place comes too late.
  """
  count, length = same_length(lengths_N)
  padding, rows = vocab - 1, np.arange(count)
  half = padding // 2
  key_sizes = (1, MOTIF + 1) if everywhere else (MOTIF, MOTIF + 1)

  def draw(sizes, first, choices):
    size_N = rng.integers(*sizes, count)
    motif = first + _motifs(rng, count, choices)
    return np.where(np.arange(MOTIF) < size_N[:, None], motif, -1)

  def draw_pair():
    return np.concatenate([draw(key_sizes, 0, half), draw(
        (1, MOTIF + 1), half, padding - half)], 1)

  probe = draw_pair()
  size_N = (probe >= 0).sum(1)
  place_N = rng.integers(0, length - 2 * size_N)
  last_N = length - size_N - 2 * MOTIF
  placed = np.zeros(count, bool)
  end_N = np.zeros(count, np.int64)
  tokens = np.full((count, length + 2), padding)
  asked = np.zeros(tokens.shape, bool)
  history = []

  def write(pair, active, ask):
    for j in range(2 * MOTIF):
      some = np.flatnonzero(active & (pair[:, j] >= 0))
      tokens[some, end_N[some]] = pair[some, j]
      asked[some, end_N[some]] = ask[some] & (j >= MOTIF)
      end_N[some] += 1

  while True:
    active = end_N < last_N
    if not active.any():
      break
    pair = draw_pair()
    due = active & ~placed & (end_N >= place_N)
    pair[due] = probe[due]
    known = np.zeros(count, bool)
    for earlier, were in history:
      same = were & ~known & (earlier[:, :MOTIF] == pair[:, :MOTIF]).all(1)
      pair[same] = earlier[same]
      known |= same
    of_probe = (pair[:, :MOTIF] == probe[:, :MOTIF]).all(1)
    pair[of_probe] = probe[of_probe]
    placed |= active & of_probe
    write(pair, active, known)
    history.append((pair, active))
  write(probe, np.ones(count, bool), np.ones(count, bool))
  # Padding moves to the beginning, so that all sequences end with the probe.
  source = np.arange(length + 1) - (length + 1 - end_N)[:, None]
  moved = np.where(source >= 0, tokens[rows[:, None], source], padding)
  asked = (source >= 0) & asked[rows[:, None], source]
  return _next(moved, asked, length, everywhere)


def _motifs(rng, count, choices):
  # `MOTIF` different numbers below `choices`, [count, MOTIF].
  drawn = np.zeros((count, MOTIF), np.int64)
  for i in range(MOTIF):
    number = rng.integers(0, choices - i, count)
    for earlier in np.sort(drawn[:, :i], 1).T:
      number += number >= earlier
    drawn[:, i] = number
  return drawn


def _next(tokens, asked, length, everywhere):
  answers = tokens[:, 1:length + 1] + 1
  if not everywhere:
    answers = answers * asked[:, 1:length + 1]
  return tokens[:, :length], answers


def draw_copying(rng, lengths_N, vocab, copied):
  """Generates `copied` symbols among blanks, then the places of the answers.

  Codes: symbols, the blank, then the sign that answers begin after it. Each
  blank comes before a random symbol, so the sign follows the last symbol.
  """
  count, length = same_length(lengths_N)
  blank, sign = vocab - 2, vocab - 1
  wanted = rng.integers(0, blank, (count, copied))
  blanks = length - 2 * copied - 1
  # Symbol i comes after the blanks that precede symbols 0 ... i.
  before = np.sort(rng.integers(0, copied, (count, blanks)), 1)
  places = np.stack([(before <= i).sum(1) + i for i in range(copied)], 1)
  tokens = np.full((count, length), blank)
  np.put_along_axis(tokens, places, wanted, 1)
  tokens[:, -copied - 1] = sign
  answers = np.zeros((count, length), np.int64)
  answers[:, -copied:] = wanted + 1
  return tokens, answers


def draw_compression(rng, lengths_N, vocab):
  """Generates random symbols, then the last code; each token is its answer.

  A model may read only the encoding of the last token (`Task.compressed`).
  """
  count, length = same_length(lengths_N)
  tokens = rng.integers(0, vocab - 1, (count, length))
  tokens[:, -1] = vocab - 1
  return tokens, tokens + 1


def draw_memorization(rng, lengths_N, vocab):
  """Generates keys, each before the last code, which is asked for its value."""
  count, length = same_length(lengths_N)
  known = dictionary(vocab)
  keys = rng.integers(0, len(known), (count, length // 2))
  tokens = np.full((count, length), vocab - 1)
  answers = np.zeros((count, length), np.int64)
  tokens[:, :2 * keys.shape[1]:2] = keys
  answers[:, 1::2] = known[keys] + 1
  return tokens, answers


def dictionary(vocab: int) -> np.ndarray:
  """Returns the value of each key: that of the released code, int64 [keys]."""
  rng = np.random.default_rng(_DICTIONARY_SEED)
  half = (vocab - 1) // 2
  keys, values = list(range(half)), list(range(half, vocab - 1))
  rng.shuffle(keys)
  rng.shuffle(values)
  value_of = dict(zip(keys, values, strict=False))
  return np.array([value_of[key] for key in range(half)])


_DRAW = {
    'mad_recall': draw_recall, 'mad_noisy_recall': draw_recall,
    'mad_fuzzy_recall': draw_fuzzy, 'mad_copying': draw_copying,
    'mad_compression': draw_compression, 'mad_memorization': draw_memorization}

_RULES = {'commonest symbol': (commonest_answer, (
    'always answers with the symbol that is most frequent in the sequence '
    'among those that are answers'))}


def _variant(task, setting):
  sizes = dict(setting)
  length = mad.tokens(task, sizes.pop('length'))
  trained = Part(sizes.pop('examples'), length, sizes=(
      {'everywhere': True} if 'recall' in task else {}))
  tested = Part(mad.TESTED, length)
  return Variant(_DRAW[task], sizes, (trained,), (tested,), (tested,),
                 rules={} if task == 'mad_memorization' else _RULES)


VARIANTS = {name: _variant(task, setting) for task in mad.BASELINES
            for name, setting in mad.settings(task).items()}
