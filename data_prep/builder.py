"""Writes arrays as array_record files: the TFDS builder of all data sets.

Each document or pair is one record: the token codes as bytes, the label, and
the two documents of a pair. Documents of pairs are stored once, as a split of
their own. Nothing here needs TensorFlow.
"""

import abc
import contextlib
import dataclasses
import json
import logging
import math
import os
import pathlib
import urllib.request

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module
from google.protobuf.message import DecodeError
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.proto import tf_example_pb2

from lra.core import tasks
from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep.content import SPLITS, Content, Split, fingerprint, split_of

_DOCUMENTS = 'documents'
_BYTES = 256  # possible codes of a byte
_ANSWER_SECONDS = 20  # longest wait for the answer of a server


class _Info(tfds.core.DatasetInfo):

  def initialize_from_bucket(self) -> None:
    """Does nothing: a query of TFDS' bucket would only leave a folder."""


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Base class of builders: stores the data that `make` returns.

  Attributes:
    DUAL: whether examples are pairs of documents.
    DEFINITION: version of the rule that makes the data. Raise it whenever a
      change gives other data from the same source.
    GENERATED: whether the data are generated if `source` is None.
    source: files to make the data from; None to download or generate them.
  """
  VERSION = tfds.core.Version('1.0.0')
  DUAL = False
  DEFINITION = 1
  GENERATED = False
  # Otherwise TFDS looks for checksums beside the code. For that it needs the
  # package importlib_resources, which it does not install.
  code_path = None
  source: pathlib.Path | None = None

  @abc.abstractmethod
  def make(self, dl_manager) -> Content:
    """Returns the data of `self.builder_config`, made from `self.source`."""

  @abc.abstractmethod
  def parameters(self) -> dict:
    """Returns the parameters of `self.builder_config`: sizes, cuts, seeds."""

  def definition(self) -> dict:
    """Returns DEFINITION and the parameters, which fix the data, for JSON."""
    return json.loads(json.dumps(
        {'number': self.DEFINITION, **self.parameters()}))

  def core_hours(self) -> float:
    """Returns about how many hours one CPU core generates the data."""
    return 0.0

  def identify_source(self):
    """Returns a JSON value by which sources differ; None if none matters."""
    return None

  @property
  def task_name(self) -> str:
    """Name of the task with this data set."""
    return next(t.name for t in tasks.TASKS.values() if
                (t.dataset, t.variant) == (self.name, self.builder_config.name))

  @property
  def absent(self) -> str:
    """Start of an error message: names the folder without a data set."""
    return f'{pathlib.Path(self.data_dir).parent} has no prepared data set'

  def fetch(self, dl_manager, name: str, what: str) -> pathlib.Path:
    """Downloads the one file of `url_infos`; see `fetch_all`."""
    path, = self.fetch_all(dl_manager, name, what)
    return path

  def fetch_all(self, dl_manager, name: str, what: str) -> list[pathlib.Path]:
    """Downloads the files of `url_infos` and compares their checksums.

    Args:
      dl_manager: TFDS download manager; it compares the checksum.
      name: name of the file, or of a folder for all files, for the error.
      what: content of the files (`CIFAR-10`), for the error.

    Raises:
      UserError: the download failed; the message tells how to do without it.
    """
    urls = list(self.url_infos)
    logging.getLogger('urllib3').setLevel(logging.ERROR)
    try:
      # Without a network, TFDS would try again for many minutes.
      request = urllib.request.Request(urls[0], method='HEAD')
      urllib.request.urlopen(request, timeout=_ANSWER_SECONDS).close()
      return [pathlib.Path(dl_manager.download(url)) for url in urls]
    except Exception as e:
      raise UserError(
          f'{self.absent}, and {what} could not be downloaded '
          f'({type(e).__name__}): set TFDS_DATA_DIR to a folder that has it, '
          f'or fetch {" and ".join(urls)} by other means and run python -m '
          f'data_prep --task={self.task_name} --source=.../{name}.') from e

  def check_files(self) -> None:
    """Counts the records of each split, without reading them, and checks it.

    Raises:
      UserError: a file is missing or cut short, or has too few or many records.
    """
    with _damaged(self):
      for name in (*SPLITS, *([_DOCUMENTS] if self.DUAL else [])):
        split = self.info.splits[name]
        found = sum(map(_count, split.filepaths))
        if found != split.num_examples:
          raise ValueError(f'{name} has {found:,} records instead of '
                           f'{split.num_examples:,}')

  def _info(self):
    features = {'tokens': tfds.features.Tensor(shape=(), dtype=np.object_),
                'label': tfds.features.Scalar(np.int64)}
    if self.DUAL:
      features['pair'] = tfds.features.Tensor(shape=(2,), dtype=np.int32)
    return _Info(
        builder=self, features=tfds.features.FeaturesDict(features),
        description=self.__doc__, disable_shuffling=True,
        metadata=tfds.core.MetadataDict())

  def _split_generators(self, dl_manager):
    content = self.make(dl_manager)
    self.info.metadata.update(
        content.info, fingerprint=fingerprint(content.splits),
        source=self.identify_source(), definition=self.definition())
    splits = _apart(content.splits)
    self._bar = progress(
        total=sum(map(len, splits.values())), unit=' records',
        desc=f'storing {self.info.full_name}')
    return {k: self._generate_examples(v) for k, v in splits.items()}

  def _generate_examples(self, split):
    for i, label in enumerate(split.labels):
      example = {'tokens': split.document(i), 'label': int(label)}
      if self.DUAL:
        example['pair'] = split.pairs[i]
      yield i, example
      self._bar.update()

  def _download_and_prepare(self, *args, **kwargs):
    tfds.disable_progress_bar()
    # TFDS would write larger splits to temporary files, with TensorFlow.
    largest, shuffle.MAX_MEM_BUFFER_SIZE = (
        shuffle.MAX_MEM_BUFFER_SIZE, math.inf)
    try:
      super()._download_and_prepare(*args, **kwargs)
    finally:
      shuffle.MAX_MEM_BUFFER_SIZE = largest
      tfds.enable_progress_bar()
    self._bar.close()
    read(self)

  def _log_download_bytes(self):
    """Prints nothing: the sizes that TFDS would print are not known yet."""

  def _log_download_done(self):
    """Prints nothing: the progress bar has already shown the end."""


def read(builder: Builder) -> Content:
  """Reads a prepared data set into memory and checks its fingerprint.

  Raises:
    UserError: a file is missing, cut short or altered, or has a value that is
      impossible for the task.
  """
  with _damaged(builder):
    splits = _together({name: _read_split(builder, name)
                        for name in builder.info.splits})
    info = dict(builder.info.metadata)
    if fingerprint(splits) != info['fingerprint']:
      raise ValueError('its fingerprint is not that of the prepared data')
  return Content(splits, info)


@contextlib.contextmanager
def _damaged(builder):
  """Turns an error from reading the files of `builder` into a UserError."""
  try:
    yield
  except (RuntimeError, ValueError, KeyError, IndexError, TypeError, OSError,
          DecodeError) as e:
    reason = f'{type(e).__name__}: {str(e).split(";")[0]}'
    raise UserError(
        f'The data set in {builder.data_dir} is damaged ({reason}): delete '
        'that directory and run the command again.') from e


def _count(path):
  if not os.path.exists(path):
    raise ValueError(f'{os.path.basename(path)} is missing')
  reader = array_record_module.ArrayRecordReader(str(path))
  try:
    return reader.num_records()
  finally:
    reader.close()


def _read_split(builder, name):
  documents, labels, pairs = [], [], []
  for path in builder.info.splits[name].filepaths:
    reader = array_record_module.ArrayRecordReader(str(path))
    before = len(labels)
    for record in reader.read_all():
      feature = tf_example_pb2.Example.FromString(record).features.feature
      documents.append(feature['tokens'].bytes_list.value[0])
      labels.append(feature['label'].int64_list.value[0])
      if builder.DUAL:
        pairs.append(feature['pair'].int64_list.value[:])
    reader.close()
    _check_codes(builder, path, documents[before:])
    if name != _DOCUMENTS:
      _check_numbers(builder, path, labels[before:], pairs[before:])
  return split_of(documents, labels, pairs if builder.DUAL else None)


def _check_codes(builder, path, documents):
  """Raises ValueError if a token code is not in the task's vocabulary."""
  codes = tasks.get(builder.task_name).vocab_size - 1
  if codes < _BYTES:
    _check_range(path, 'token code', np.frombuffer(
        b''.join(documents), np.uint8), codes)


def _check_numbers(builder, path, labels, pairs):
  """Raises ValueError for labels and document numbers that do not exist."""
  classes = tasks.get(builder.task_name).num_classes
  _check_range(path, 'label', np.array(labels, np.int64), classes)
  if builder.DUAL:
    _check_range(path, 'document number', np.array(pairs, np.int64),
                 builder.info.splits[_DOCUMENTS].num_examples)


def _check_range(path, what, values, count):
  for value in (values.min(initial=0), values.max(initial=0)):
    if not 0 <= value < count:
      raise ValueError(f'{os.path.basename(path)} has the {what} {value}, '
                       f'which must be one of 0 to {count - 1:,}')


def _apart(splits):
  """Returns the splits to store; for pairs, adds a split of all documents."""
  shared = splits['train']
  if shared.pairs is None:
    return splits
  documents = len(shared.offsets) - 1
  stored = {_DOCUMENTS: dataclasses.replace(
      shared, labels=np.full(documents, -1),
      pairs=np.full((documents, 2), -1, np.int32))}
  for name, split in splits.items():
    stored[name] = dataclasses.replace(
        split, tokens=shared.tokens[:0], offsets=np.zeros(len(split) + 1, int))
  return stored


def _together(stored: dict[str, Split]) -> dict[str, Split]:
  """Undoes `_apart`."""
  shared = stored.pop(_DOCUMENTS, None)
  if shared is None:
    return stored
  return {name: dataclasses.replace(
      split, tokens=shared.tokens, offsets=shared.offsets)
      for name, split in stored.items()}
