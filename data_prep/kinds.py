"""Lists the baselines of each data set, and shows its examples as text."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping

import numpy as np

from lra.core import mad, paths, tasks
from lra.core.errors import UserError
from lra.data_prep import parts


def majority(train, test) -> np.ndarray:
  """Returns whether each test label is the commonest one of train, bool [N]."""
  return test.labels == np.bincount(train.labels).argmax()


def first_operator(train, test) -> np.ndarray:
  """Returns whether `parts.by_first_token` answers test rightly, bool [N]."""
  return parts.by_first_token(train, test) == test.labels


_MAJORITY = {'majority': (
    majority, 'always answers with the most common label of train')}


@dataclasses.dataclass(frozen=True)
class Kind:
  """The properties of a data set.

  Attributes:
    show: token codes of a document -> text.
    quick: name -> (function, description): the fast baselines. The function
      takes train and test. It returns whether each answer on test is right,
      bool [N], or the probability of that, float64 [N].
    slow: name -> function: the other baselines. The function takes the splits
      and the task's variant. It returns whether each answer on test is right,
      bool [N], and a description of the method.
    image: whether documents are square images.
  """
  show: Callable[[bytes], str]
  quick: Mapping[str, tuple[Callable, str]] = dataclasses.field(
      default_factory=lambda: _MAJORITY)
  slow: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
  image: bool = False


def _expression(tokens):
  from lra.data_prep import listops
  return listops.decode(tokens)


def _text(tokens):
  # Cutting documents to the task's length may have split a character.
  return ' '.join(tokens.decode('utf-8', errors='replace').split())


def _pixels(tokens):
  return ' '.join(map(str, tokens))


def _codes(tokens):
  return ' '.join(str(code) if code else '.' for code in tokens)


def _symbols(tokens):
  from lra.data_prep.probes import languages
  # The answers of an expression have one code above 0, the last one.
  if not any(tokens[:-1]):
    return _codes(tokens)
  return ''.join(languages.SYMBOLS[code] for code in tokens)


def _probe(family, name):
  def baseline(train, test):
    module = importlib.import_module(f'lra.data_prep.probes.{family}')
    return getattr(module, name)(train, test)
  return baseline


def _linear(name):
  def baseline(splits, variant):
    del variant
    try:
      from lra.data_prep import linear
    except ImportError as e:
      raise UserError('The linear baselines need scikit-learn: run '
                      f'{paths.extra("baselines")}.') from e
    return getattr(linear, name)(splits)
  return baseline


def _ridge(splits, variant):
  del variant
  from lra.data_prep import pixels
  return pixels.ridge(splits)


def _marker_distance(splits, variant):
  from lra.data_prep import pathfinder, pixels
  return pixels.marker_distance(
      splits, pathfinder.VARIANTS[variant].law.marker_radius)


_ASKED = {'majority': (_probe('questions', 'majority'),
                       'always answers with the most common class of train'),
          'chance': (_probe('questions', 'chance'),
                     'guesses a class at random')}
_LAST_TOKENS = {'last tokens': (_probe('questions', 'last_tokens'), (
    'answers with the most common class of train after the same three '
    'tokens'))}
_PLACE = {'place': (
    _probe('questions', 'place'),
    'answers with the most common class of train at this position')}


def _asked(name, family, rule, how):
  return Kind(_codes, {**_ASKED, name: (_probe(family, rule), how)})


_KINDS = {
    'listops': Kind(_expression, {**_MAJORITY, parts.FIRST_OPERATOR: (
        first_operator,
        'answers with the most common label of train for the first '
        'operator')}),
    'text': Kind(_text, slow={'byte n-grams': _linear('byte_ngrams')}),
    'zhang': Kind(_text, slow={'byte n-grams': _linear('byte_ngrams')}),
    'retrieval': Kind(_text, slow={'TF-IDF cosine': _linear('tfidf_cosine')}),
    'image': Kind(_pixels, slow={'ridge on pixels': _ridge}, image=True),
    'mnist': Kind(_pixels, slow={'ridge on pixels': _ridge}, image=True),
    'pathfinder': Kind(_pixels, slow={
        'ridge on pixels': _ridge, 'marker distance': _marker_distance},
        image=True),
    'probes': Kind(_codes, _ASKED),
    'mqar': Kind(_codes, {
        **_ASKED,
        'any value': (
            _probe('recall', 'any_value'),
            'always answers with the first value of the sequence'),
        'place': (_probe('recall', 'by_place'), (
            'answers with the value of the pair that questions at this '
            'position ask for most often in train'))}),
    'mqar_zoology': _asked('first value', 'recall', 'first_value', (
        'always answers with the first value of the sequence')),
    'mqar_forgetting': _asked('first meaning', 'recall', 'first_meaning', (
        'answers with the first value of the key, as if it never changed')),
    'mqar_compositional': _asked(
        'second part', 'recall', 'by_second_part', (
            'answers with the last value that the second part of the key had, '
            'whatever the first part')),
    'phonebook': _asked('same token', 'lookup', 'same_token', (
        'answers with the digit after the last earlier occurrence of the same '
        'token')),
    'regbench_mini': _asked('known pair', 'automata', 'known_pair', (
        'calls a letter legal if the words before have it after the same '
        'letter')),
    **{name: _asked('commonest symbol', 'mad', 'commonest_answer', (
        'always answers with the symbol that is most frequent in the sequence '
        'among those that are answers'))
       for name in ('mad_recall', 'mad_fuzzy_recall', 'mad_noisy_recall',
                    'mad_copying', 'mad_compression')},
    'selective_copying': Kind(_codes, {**_ASKED, 'commonest symbol': (
        _probe('copying', 'commonest_symbol'),
        'always answers with the most frequent symbol of the sequence')}),
    'modular_arithmetic': Kind(_symbols, _ASKED),
    'modular_arithmetic_brackets': Kind(_symbols, {**_ASKED, **_LAST_TOKENS}),
    's5_swaps': Kind(_codes, {**_ASKED, **_PLACE}),
    'dyck': Kind(_codes, {**_ASKED, **_LAST_TOKENS}),
    'bucket_sort': Kind(_codes, {**_ASKED, **_PLACE, 'share': (
        _probe('regular', 'by_share'),
        'answers as if all symbols were equally frequent')}),
}


def of(task: tasks.Task) -> Kind:
  """Returns the properties of a task, by default those of its data set."""
  name = mad.task_of(task.name)
  return _KINDS.get(name) or _KINDS[task.dataset]
