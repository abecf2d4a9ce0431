"""Finds the vocabulary of an experiment, and loads its data set.

A run with a tokenizer keeps a copy of the vocabulary in its directory. So it
can be evaluated and exported without the folder it was read from.
"""

import pathlib

from lra.core.errors import UserError
from lra.data import prepared, wordpiece
from lra.run import bert, source


def fingerprint(config) -> str:
  """Returns the value of `config.tokenizer_source`; '' for bytes.

  Args:
    config: a checked config with its `init_source`.

  Raises:
    UserError: the vocabulary cannot be read or does not fit the encoder.
  """
  place = _place(config)
  if not place:
    return ''
  if 0 < config.seq_len < 3:
    raise UserError(
        f'config.seq_len={config.seq_len} leaves no room for a word between '
        'the marks of its start and its end: set it to 3 or more.')
  found, size = wordpiece.read(place), config.encoder.vocab_size
  if size < len(found.pieces):
    raise UserError(
        f'config.encoder.vocab_size={size} is too small for {place}: set it to '
        f'{len(found.pieces)}, or to the vocab_size of its model.')
  return found.sha256[:16]


def of(experiment) -> wordpiece.Vocabulary | None:
  """Returns the vocabulary of an experiment; None for bytes.

  Raises:
    UserError: the encoder has one, but the config names none; or the files of
      the vocabulary are missing or have changed.
  """
  config = experiment.config
  if not config.tokenizer_source:
    if config.encoder.vocab_size:
      raise UserError(
          f'config.encoder.vocab_size={config.encoder.vocab_size} needs a '
          'tokenizer: give the folder of a BERT as --config.init_from, or as '
          '--config.tokenizer for fresh parameters.')
    return None
  kept = experiment.folder / 'vocab.txt'
  place = kept if kept.exists() else _place(config)
  if not place:
    raise UserError(f'{experiment.folder} has no vocab.txt: copy it there from '
                    'the folder of the tokenizer.')
  found = wordpiece.read(place)
  if found.sha256[:16] != config.tokenizer_source:
    raise UserError(f'{place} has another vocabulary than the run '
                    f'{experiment.folder}: restore it.')
  return found


def load(experiment, data_dir=None) -> prepared.Prepared:
  """Loads an experiment's data set, in word pieces if it has a tokenizer.

  Args:
    experiment: the experiment.
    data_dir: folder of the data sets; by default that of the config.

  Raises:
    UserError: see `of` and `prepared.load`.
  """
  words = of(experiment)  # an error here is known before data are prepared
  data = prepared.load(
      experiment.task.name, data_dir or experiment.config.data_dir or None)
  return words.prepared(data, experiment.objective.seq_len) if words else data


def _place(config):
  """Returns the path of the vocabulary that a config names, or None."""
  if config.tokenizer:
    return pathlib.Path(config.tokenizer)
  there = bert.made(config.init_source) and config.init_from
  return source.folder(config) if there else None
