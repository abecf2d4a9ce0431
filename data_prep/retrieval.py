"""Retrieval: does one document cite the other? Two byte strings, two classes.

There are two corpora. `aan` is the ACL Anthology Network of Long
Range Arena, in the official tables of its release (`lra.data_prep.aan`). `rfc`
is
citations among IETF RFCs: `documents.jsonl.gz` (one object per line, with `id`
and `text`) and `pairs.{train,eval,test}.tsv.gz` (label and two ids). Documents
are stored once and pairs are indices.
"""

import json

import numpy as np
import tensorflow_datasets as tfds

from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep import aan
from lra.data_prep.builder import Builder
from lra.data_prep.content import Content, choose, duplicates, split_of
from lra.data_prep.tables import bad_row, find, part, read_lines, read_rows

RFC_FILES = {
    'documents': 'documents.jsonl', 'train': 'pairs.train.tsv',
    'val': 'pairs.eval.tsv', 'test': 'pairs.test.tsv'}
BYTES = 4000
MINI_BYTES = 512
MINI_PAIRS = {'train': 60_000, 'val': 1000, 'test': 4000}


class Retrieval(Builder):
  """Byte-level document pairs of Long Range Arena (arXiv 2011.04006)."""
  DUAL = True
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(name='aan', description='AAN citations'),
      tfds.core.BuilderConfig(name='rfc', description='RFC citations'),
      tfds.core.BuilderConfig(
          name='rfc_mini', description='RFC citations, 512 bytes, fewer pairs'),
  ]

  def parameters(self):
    mini = self.builder_config.name == 'rfc_mini'
    return {'bytes_kept': MINI_BYTES if mini else BYTES,
            'pairs': MINI_PAIRS if mini else None}

  def make(self, dl_manager):
    paths = self._paths()
    if self.builder_config.name == 'aan':
      return read_aan(paths)
    return read_rfc(paths, mini=self.builder_config.name == 'rfc_mini')

  def identify_source(self):
    return {path.name: path.stat().st_size for path in self._paths().values()}

  def _paths(self):
    files = aan.FILES if self.builder_config.name == 'aan' else RFC_FILES
    if self.source is None:
      raise UserError(
          f'{self.absent}, and the documents of {self.task_name} cannot be '
          'downloaded: set TFDS_DATA_DIR to their folder, or get '
          f'the directory with {", ".join(files.values())} and run python -m '
          f'data_prep --task={self.task_name} --source=DIR.')
    return find(self.source, files, self.task_name)


BUILDER = Retrieval


def read_aan(paths) -> Content:
  """Reads the official tables row by row and decodes bytes literals.

  Other implementations do not decode them, see `lra.data_prep.aan`.

  Raises:
    UserError: a row is malformed; the message names file, line and reason.
  """
  documents, examples = aan.read(paths, BYTES)
  splits = {name: (documents.heads, labels, pairs)
            for name, (labels, pairs) in examples.items()}
  sizes = [len(labels) for labels, _ in examples.values()]
  origin = 'ACL Anthology Network, official tables' + part(
      'retrieval', sizes, aan.ROWS.values())
  if documents.literals:
    origin += ', bytes literals decoded'
  return _content(splits, origin, BYTES,
                  ids_with_other_text=documents.other_texts())


def read_rfc(paths, mini: bool) -> Content:
  """Reads RFC citations; `mini` keeps part of the pairs and of each document.

  Raises:
    UserError: a row is malformed, or names a document that does not exist.
  """
  cut = MINI_BYTES if mini else BYTES
  texts = _read_documents(paths['documents'])
  numbers = {name: i for i, name in enumerate(texts)}
  heads = [text[:cut] for text in texts.values()]
  splits = {}
  for name in ('train', 'val', 'test'):
    labels, pairs = _read_pairs(paths[name], numbers)
    if mini:
      keys = [f'{a} {b}' for a, b in pairs]
      kept = choose(keys, labels, MINI_PAIRS[name])
      labels, pairs = np.array(labels)[kept], np.array(pairs)[kept]
    splits[name] = heads, labels, pairs
  return _content(splits, 'citations among IETF RFCs', cut)


def _content(splits, origin, cut, **facts):
  """Makes the data set; leaves out documents that are in no pair."""
  pairs = {name: np.asarray(s[2], np.int64) for name, s in splits.items()}
  used, where = np.unique(
      np.concatenate([p.reshape(-1) for p in pairs.values()]),
      return_inverse=True)
  heads = next(iter(splits.values()))[0]
  documents = [heads[i] for i in used.tolist()]
  ends = np.cumsum([p.size for p in pairs.values()])[:-1]
  content = {}
  for (name, (_, labels, _)), numbers in zip(
      splits.items(), np.split(where, ends), strict=True):
    content[name] = split_of(documents, labels, numbers)
  return Content(content, {
      'origin': origin, 'bytes_kept': cut, 'documents': len(documents),
      'duplicates': duplicates(content), **facts})


def _read_documents(path):
  """Returns a dict from id to text, in the order of the file."""
  texts = {}
  for line, row in progress(
      read_lines(path), desc=f'reading {path.name}', unit=' documents'):
    try:
      document = json.loads(row)
      name, text = document['id'], document['text'].encode('utf-8')
      if not isinstance(name, str):
        raise TypeError('the id is no text')
    except (ValueError, KeyError, TypeError, AttributeError,
            RecursionError) as e:
      raise bad_row(path, line, f'not an object with id and text ({e})'
                    ) from None
    if texts.setdefault(name, text) != text:
      raise bad_row(path, line, f'document {name!r} again, with another text')
  return texts


def _read_pairs(path, numbers):
  labels, pairs = [], []
  for line, fields in progress(
      read_rows(path), desc=f'reading {path.name}', unit=' pairs'):
    if len(fields) != 3:
      raise bad_row(path, line, f'{len(fields)} columns instead of 3')
    if fields[0] not in ('0', '1'):
      raise bad_row(path, line, f'the label is {fields[0]!r} instead of 0 or 1')
    for name in fields[1:]:
      if name not in numbers:
        raise bad_row(path, line, f'document {name!r} does not exist')
    labels.append(int(fields[0]))
    pairs.append((numbers[fields[1]], numbers[fields[2]]))
  if not labels:
    raise bad_row(path, 1, 'no pairs')
  return labels, pairs
