"""Retrieval: does one document cite the other? Two byte strings, two classes.

There are two corpora. `aan` is the ACL Anthology Network of Long Range Arena,
in the official tables of its release (`lra.data_prep.aan`). `rfc` is citations
among IETF RFCs: `documents.jsonl.gz` (one object per line, with `id` and
`text`) and `pairs.{train,eval,test}.tsv.gz` (label and two ids). Documents are
stored once and pairs are indices.
"""

import json

import numpy as np

from lra.core import foreign
from lra.core.terminal import progress
from lra.data_prep import aan, words
from lra.data_prep.builder import Builder, configs
from lra.data_prep.content import SPLITS, Content, choose, split_of
from lra.data_prep.source import Origin, bad_row, part, read_lines, read_rows

RFC_FILES = {
    'documents': 'documents.jsonl', 'train': 'pairs.train.tsv',
    'val': 'pairs.eval.tsv', 'test': 'pairs.test.tsv'}
BYTES = 4000
MINI_BYTES = 512
WORDS = 64
MINI_PAIRS = {'train': 60_000, 'val': 1000, 'test': 4000}


class Retrieval(Builder):
  """Byte-level document pairs of Long Range Arena (arXiv 2011.04006)."""
  DUAL = True
  BUILDER_CONFIGS = configs(
      aan='AAN citations', rfc='RFC citations',
      rfc_mini='RFC citations, 512 bytes, fewer pairs',
      rfc_words='RFC citations, 64 words')

  @property
  def tables(self):
    return aan.FILES if self.builder_config.name == 'aan' else RFC_FILES

  @property
  def names(self):
    return self.tables.values()

  @property
  def origin(self):
    return Origin(f'the corpus of {self.task.name}',
                  f'a directory with {", ".join(self.names)}')

  def parameters(self):
    if self.builder_config.name == 'rfc_words':
      return {'words_kept': WORDS, 'vocabulary': words.WORDS}
    mini = self.builder_config.name == 'rfc_mini'
    return {'bytes_kept': MINI_BYTES if mini else BYTES,
            'pairs': MINI_PAIRS if mini else None}

  def make(self, files):
    paths = dict(zip(self.tables, files.find(self.names), strict=True))
    if self.builder_config.name == 'aan':
      return read_aan(paths)
    content = read_rfc(paths, mini=self.builder_config.name == 'rfc_mini')
    return content if self.builder_config.name != 'rfc_words' else in_words(
        content)


def read_aan(paths) -> Content:
  """Reads the official tables, see `lra.data_prep.aan`."""
  found = aan.read(paths, BYTES)
  origin = 'ACL Anthology Network, official tables' + part(
      'retrieval', [len(labels) for labels, _ in found.examples.values()],
      aan.ROWS.values())
  if found.literals:
    origin += ', bytes literals decoded'
  return _content(found.heads, found.examples, origin, BYTES,
                  ids_with_other_text=found.other_texts)


def read_rfc(paths, mini: bool) -> Content:
  """Reads RFC citations; `mini` keeps part of them and of each document."""
  cut = MINI_BYTES if mini else BYTES
  texts = _read_documents(paths['documents'])
  numbers = {name: i for i, name in enumerate(texts)}
  examples = {}
  for name in SPLITS:
    labels, pairs = _read_pairs(paths[name], numbers)
    if mini:
      keys = [f'{a} {b}' for a, b in pairs]
      kept = choose(keys, labels, MINI_PAIRS[name])
      labels, pairs = np.array(labels)[kept], np.array(pairs)[kept]
    examples[name] = labels, pairs
  fewer = part('retrieval_rfc_mini', [
      len(labels) for labels, _ in examples.values()],
      MINI_PAIRS.values()) if mini else ''
  return _content([text[:cut] for text in texts.values()], examples,
                  f'citations among IETF RFCs{fewer}', cut)


def in_words(content: Content) -> Content:
  """Returns the first `WORDS` words of documents, see `words.encoded`.

  The vocabulary is that of the documents of train.
  """
  train = content.splits['train']
  texts = [words.words_of(train.document(i))[:WORDS]
           for i in range(len(train.offsets) - 1)]
  codes = words.vocabulary(texts[i] for i in np.unique(train.pairs))
  made = {name: words.encoded(texts, split.labels, codes, split.pairs)
          for name, split in content.splits.items()}
  info = {name: value for name, value in content.info.items()
          if name != 'bytes_kept'}
  return Content(made, {**info, 'words_kept': WORDS})


def _content(heads, examples, origin, cut, **facts):
  """Makes the data set; leaves out documents that are in no pair."""
  pairs = [np.asarray(pairs, np.int64) for _, pairs in examples.values()]
  used, where = np.unique(np.concatenate(pairs), return_inverse=True)
  documents = [heads[i] for i in used.tolist()]
  numbers = np.split(where.reshape(-1, 2), np.cumsum([*map(len, pairs)])[:-1])
  splits = {name: split_of(documents, labels, of) for (name, (labels, _)), of
            in zip(examples.items(), numbers, strict=True)}
  return Content(splits, {
      'origin': origin, 'bytes_kept': cut, 'documents': len(documents)} | facts)


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
      raise bad_row(path, line, 'not an object with id and text '
                    f'({foreign.why(e)})') from None
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
