"""Probes: small generated tasks that each test one ability of a mechanism.

The papers train causal models on them. Here a mechanism that is not causal
reads in both directions, so at a question it also sees later questions.

An example is a pair of documents of equal length: a sequence, and the answer at
each of its tokens. In the answers, code 0 marks a token without a question, and
code c + 1 means class c. Nothing is stored: each read generates the data anew
from one seed, which takes a second.

`VARIANTS` names the generator of each probe, its sizes, and simple rules that
answer its questions. The files have the generators.
"""

import dataclasses
import functools

import numpy as np

from lra.data_prep.content import SPLITS, Content, Split, fingerprint, slices
from lra.data_prep.probes import (
  automata,
  groups,
  languages,
  mad,
  questions,
  recall,
)
from lra.data_prep.probes.questions import asked, chance, majority
from lra.data_prep.probes.variant import (
  CHOSEN,
  SCORED,
  TRAINED,
  Part,
  Variant,
  of_length,
)

__all__ = ['VARIANTS', 'asked', 'chance', 'generate', 'generate_longer',
           'generate_test', 'majority']

_SEED = 0
# Sequences in a test of another length.
_LONGER = 1000
# Tokens of the longest training sequence of words and of languages.
_WORDS, _STRINGS = 32, 40

_LAST_TOKENS = {'last tokens': (questions.last_tokens, (
    'answers with the most common class of train after the same three '
    'tokens'))}
_PLACE = {'place': (questions.place, (
    'answers with the most common class of train at this position'))}


def _words(elements, length=_WORDS, rules=None, **sizes):
  sizes = dict(group=groups.table(elements), **sizes)
  return of_length(groups.draw_products, length, sizes=sizes, last=True,
                   rules=rules or {})


_S3, _S5 = groups.permutations(3), groups.permutations(5)

VARIANTS = {
    'mqar': of_length(
        recall.draw_recall, 128, sizes=dict(symbols=128, pairs=32), rules={
            'any value': (functools.partial(recall.first_value, first=64), (
                'always answers with the first value of the sequence')),
            'place': (functools.partial(recall.by_place, pairs=32, first=64), (
                'answers with the value of the pair that questions at this '
                'position ask for most often in train'))}),
    'mqar_zoology': recall.zoology(),
    'mqar_forgetting': of_length(
        recall.draw_forgetting, 96,
        sizes=dict(symbols=128, pairs=16, updates=8), rules={'first meaning': (
            functools.partial(recall.value_after, first=True, least=64),
            'answers with the first value of the key, as if it never '
            'changed')}),
    'mqar_compositional': of_length(
        recall.draw_compositional, 96, sizes=dict(symbols=192, grid=4),
        rules={'second part': (
            functools.partial(recall.value_after, first=False, least=128),
            'answers with the last value that the second part of the key had, '
            'whatever the first part')}),
    'phonebook': of_length(
        recall.draw_phonebook, 102, sizes=dict(letters=26), rules={
            'same token': (
                functools.partial(recall.value_after, first=False,
                                  least=recall.DIGITS, most=recall.LETTERS),
                'answers with the digit after the last earlier occurrence of '
                'the same token')}),
    'copying': of_length(
        recall.draw_copying, 46, sizes=dict(symbols=8, pause=5)),
    'selective_copying': of_length(
        recall.draw_selective, 64, sizes=dict(symbols=14, copied=8), rules={
            'commonest symbol': (
                functools.partial(
                    questions.commonest_answer, first=recall.SYMBOLS),
                'always answers with the most frequent symbol of the '
                'sequence')}),
    'regbench_mini': of_length(
        automata.draw_words, 128, sizes=dict(
            letters=4, states=6, most=3, asked=32),
        rules={'known pair': (automata.known_pair, (
            'calls a letter legal if the words before have it after the same '
            'letter'))}),
    'parity': _words(groups.permutations(2)),
    'permutations_3': _words(_S3, 12),
    'permutations_5': _words(_S5, 12, classes=[p[0] for p in _S5]),
    's3_words': _words(_S3),
    's5_words': _words(_S5),
    's5_swaps': _words(_S5, inputs=groups.moving(5, 2), rules=_PLACE),
    's5_cycles': _words(_S5, inputs=groups.moving(5, 2, 3)),
    'a5_words': _words(groups.even(5)),
    'formal_parity': of_length(languages.draw_parity, _STRINGS, 3),
    'modular_arithmetic': of_length(
        languages.draw_arithmetic, _STRINGS, 3, step=2,
        alphabet=languages.SYMBOLS),
    'modular_arithmetic_brackets': of_length(
        languages.draw_brackets, _STRINGS, 3, least=2, rules=_LAST_TOKENS,
        alphabet=languages.SYMBOLS),
    'even_pairs': of_length(languages.draw_even_pairs, _STRINGS, 1),
    'cycle_navigation': of_length(languages.draw_cycle, _STRINGS, 1),
    'missing_duplicate': of_length(
        languages.draw_missing, _STRINGS, 2, least=2),
    # Validation and test have one length, so that each sequence has as many
    # questions as the others.
    'bucket_sort': Variant(
        languages.draw_sort, {}, (Part(TRAINED, 2 * _STRINGS, 2),),
        (Part(CHOSEN, 2 * _STRINGS),), (Part(SCORED, 2 * _STRINGS),),
        step=2, least=2, rules={**_PLACE, 'share': (
            questions.by_share,
            'answers as if all symbols were equally frequent')}),
    'dyck': of_length(
        languages.draw_dyck, _STRINGS, 2, last=True,
        sizes=dict(types=8, depth=10), rules=_LAST_TOKENS),
    **mad.VARIANTS,
}


def generate(variant: Variant) -> Content:
  """Generates the data of a variant from a fixed seed; all labels are 0."""
  drawn, counts = [], []
  for stream, name in enumerate(SPLITS):
    rng = np.random.default_rng([_SEED, stream])
    parts = getattr(variant, name)
    counts.append(sum(part.count for part in parts))
    drawn += [_documents(variant, part, rng,
                         last=variant.last and name != 'train')
              for part in parts]
  whole = _joined(drawn)
  splits = {name: dataclasses.replace(
      whole, labels=whole.labels[part], pairs=whole.pairs[part])
            for name, part in slices(counts).items()}
  return Content(splits, {'origin': f'generated with seed {_SEED}',
                          'fingerprint': fingerprint(splits)})


def generate_longer(variant: Variant, length: int, shortest: int) -> Split:
  """Generates a test of lengths from `shortest` to `length`.

  Its sequences differ from those of `generate`, and depend on the lengths only.
  """
  rng = np.random.default_rng([_SEED, len(SPLITS), shortest, length])
  return _joined([_documents(
      variant, Part(_LONGER, length, shortest, variant.longer(length)), rng,
      last=variant.last)])


def generate_test(variant: Variant, name: str) -> Split:
  """Generates the test `name` of `Variant.tests`.

  Its sequences differ from those of `generate` and of the other tests.
  """
  number = list(variant.tests).index(name)
  rng = np.random.default_rng([_SEED, len(SPLITS) + 1, number])
  return _joined([_documents(
      variant, variant.tests[name], rng, last=variant.last)])


def _documents(variant, part, rng, last):
  # The codes of all documents, and the lengths of the sequences, int64 [N].
  lengths_N = variant.lengths(rng, part)
  tokens, answers = variant.draw(
      rng, lengths_N, **{**variant.sizes, **part.sizes})
  place_L = np.arange(tokens.shape[1])
  if last:
    answers = answers * (place_L == lengths_N[:, None] - 1)
  both_Nx2xL = np.stack([tokens.astype(variant.dtype),
                         answers.astype(variant.dtype)], 1)
  kept = np.broadcast_to(
      place_L < lengths_N[:, None, None], both_Nx2xL.shape)
  return both_Nx2xL[kept], lengths_N


def _joined(drawn):
  """Makes a split of the results of `_documents`."""
  tokens, lengths = zip(*drawn, strict=True)
  lengths = np.repeat(np.concatenate(lengths), 2)
  pairs = np.arange(len(lengths), dtype=np.int32).reshape(-1, 2)
  return Split(np.concatenate(tokens),
               np.concatenate([[0], np.cumsum(lengths)]),
               np.zeros(len(pairs), np.int32), pairs)
