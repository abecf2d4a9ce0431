"""Stores data sets as array_record files: the TFDS builder of all of them.

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
import pathlib
import urllib.request
from collections.abc import Iterable

import numpy as np
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader
from google.protobuf.message import DecodeError
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.core.download.checksums import UrlInfo
from tensorflow_datasets.proto import tf_example_pb2

from lra.core import paths, tasks
from lra.core.errors import UserError
from lra.core.terminal import progress, say
from lra.data_prep import content as content_lib
from lra.data_prep.content import SPLITS, Content, fingerprint, split_of
from lra.data_prep.source import Origin, Source, digest, sizes

_DOCUMENTS = 'documents'
_ANSWER_SECONDS = 20  # longest wait for the answer of a server


class _Info(tfds.core.DatasetInfo):

  def initialize_from_bucket(self) -> None:
    """Does nothing: a query of TFDS' bucket would only leave a folder."""


def configs(**descriptions: str) -> list[tfds.core.BuilderConfig]:
  """Returns the `BUILDER_CONFIGS` of variants, name -> description."""
  return [tfds.core.BuilderConfig(name=name, description=description)
          for name, description in descriptions.items()]


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Stores the data that `make` returns.

  Attributes:
    DUAL: whether examples are pairs of documents.
    DEFINITION: version of the rule that makes the data. Raise it whenever a
      change gives other data from the same source.
    GENERATED: whether the data are generated if `source` is None.
    names: the files of `source`, if it is a folder of these.
    source: the files to make the data from; None to download or generate them.
    origin: what these files are.
  """
  VERSION = tfds.core.Version('1.0.0')
  DUAL = False
  DEFINITION = 1
  GENERATED = False
  names: Iterable[str] = ()
  # Otherwise TFDS looks for checksums beside the code. For that it needs the
  # package importlib_resources, which it does not install.
  code_path = None
  source: pathlib.Path | None = None
  origin: Origin

  @abc.abstractmethod
  def make(self, files: Source | None) -> Content:
    """Returns the data of `self.builder_config`; `files` None: generated."""

  @abc.abstractmethod
  def parameters(self) -> dict:
    """Returns the parameters of `self.builder_config`: sizes, cuts, seeds."""

  def inputs(self, files: Source) -> list[pathlib.Path]:
    """Returns the files of a source; another content of them is other data."""
    return files.find(self.names) if self.names else files.paths(bool)

  def core_hours(self) -> float:
    """Returns about how many hours one CPU core generates the data."""
    return 0.0

  def definition(self) -> dict:
    """Returns DEFINITION and the parameters, which fix the data, for JSON."""
    return json.loads(json.dumps(
        {'number': self.DEFINITION, **self.parameters()}))

  @property
  def task(self) -> tasks.Task:
    variant = self.builder_config.name
    return tasks.get(variant) if self.name == tasks.OWN else next(
        t for t in tasks.TASKS.values()
        if (t.dataset, t.variant) == (self.name, variant))

  @property
  def url_infos(self):
    return {url: UrlInfo(size=size, checksum=digest,
                         filename=url.rpartition('/')[2])
            for url, (size, digest) in self.origin.downloads.items()}

  def identify_source(self):
    """Returns the digest of the `inputs` of `source`, None without any."""
    if self.source:
      files = self._files(self.source)
      if not self.source.exists():
        raise files.refused('does not exist')
      paths = self.inputs(files)
      return digest(paths) if paths else None
    if not self.GENERATED and not self.origin.downloads:
      raise UserError(
          f'{self._absent} cannot be downloaded: set TFDS_DATA_DIR to a folder '
          f'that has it, or run {self.command}=DIR, where DIR is '
          f'{self.origin.layout}.')
    return None

  def sizes_of_source(self) -> dict[str, int]:
    """Returns what earlier versions kept instead of a digest."""
    return sizes(self.inputs(self._files(self.source)))

  def _files(self, path, **downloads):
    layout = f'--source of {self.task.name} must be {self.origin.layout}'
    return Source(path, layout, **downloads)

  @property
  def _absent(self):
    return (f'{pathlib.Path(self.data_dir).parent} has no prepared data set, '
            f'and {self.origin.title}')

  @property
  def command(self) -> str:
    """Words that make the data set from a file, which follows them after =."""
    return f'{" ".join(paths.program())} data --task={self.task.name} --source'

  def _downloaded(self, dl_manager):
    infos = self.url_infos
    names = [info.filename for info in infos.values()]
    logging.getLogger('urllib3').setLevel(logging.ERROR)
    try:
      # Without a network, TFDS would try again for many minutes.
      request = urllib.request.Request(next(iter(infos)), method='HEAD')
      urllib.request.urlopen(request, timeout=_ANSWER_SECONDS).close()
      # This compares the checksums, too.
      paths = [pathlib.Path(dl_manager.download(url)) for url in infos]
    except Exception as e:
      raise UserError(
          f'{self._absent} could not be downloaded ({type(e).__name__}): set '
          'TFDS_DATA_DIR to a folder that has it, or fetch '
          f'{" and ".join(infos)} by other means and run {self.command}=.../'
          f'{self.origin.folder or names[0]}.') from e
    if len(paths) == 1:
      return self._files(paths[0])
    return self._files(paths[0].parent,
                       downloads=dict(zip(names, paths, strict=True)))

  def check_files(self) -> None:
    """Counts the records of each split; raises UserError for another number."""
    with _damaged(self):
      for name in (*SPLITS, *([_DOCUMENTS] if self.DUAL else [])):
        split, found = self.info.splits[name], 0
        for path in split.filepaths:
          if not path.exists():
            raise ValueError(f'{path.name} is missing')
          with contextlib.closing(ArrayRecordReader(str(path))) as reader:
            found += reader.num_records()
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
    content = self.make(
        self._files(self.source) if self.source else
        None if self.GENERATED else self._downloaded(dl_manager))
    equal = content_lib.duplicates(content.splits)
    self.info.metadata.update(
        {'duplicates': equal, **content.info},
        fingerprint=fingerprint(content.splits), source=self.identify_source(),
        definition=self.definition())
    for name, split in content.splits.items():
      if not len(split):
        raise UserError(f'{self.source or self.task.name} has too few examples:'
                        f' none is left for {name}.')
    for where, count in equal.items():
      if self.source and 10 * count > len(content.splits[where.split()[-1]]):
        say(f'warning: {self.source} has {count:,} equal examples in {where}: '
            'check that each of its files is the right one.')
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

  # TFDS would print sizes that are not known yet, and the end.
  _log_download_bytes = _log_download_done = lambda self: None


def read(builder: Builder) -> Content:
  """Reads a prepared data set into memory and checks its fingerprint."""
  with _damaged(builder):
    splits = _together({name: _read_split(builder, name)
                        for name in builder.info.splits})
    check_ranges(builder.task, splits)
    info = dict(builder.info.metadata)
    if fingerprint(splits) != info['fingerprint']:
      raise ValueError('its fingerprint is not that of the prepared data')
  return Content(splits, info)


@contextlib.contextmanager
def _damaged(builder):
  """Turns an error from reading the files of `builder` into a UserError."""
  try:
    yield
  except (RuntimeError, ValueError, LookupError, TypeError, OSError,
          ArithmeticError, DecodeError) as e:
    reason = f'{type(e).__name__}: {str(e).split(";")[0]}'
    raise UserError(
        f'The data set in {builder.data_dir} is damaged ({reason}): delete '
        'that directory and run the command again.') from e


def _read_split(builder, name):
  documents, labels, pairs = [], [], []
  for path in builder.info.splits[name].filepaths:
    with contextlib.closing(ArrayRecordReader(str(path))) as reader:
      for record in reader.read_all():
        feature = tf_example_pb2.Example.FromString(record).features.feature
        documents.append(feature['tokens'].bytes_list.value[0])
        labels.append(feature['label'].int64_list.value[0])
        if builder.DUAL:
          pairs.append(feature['pair'].int64_list.value[:])
  return split_of(documents, labels, pairs if builder.DUAL else None,
                  np.uint16 if builder.task.words else np.uint8)


def check_ranges(task, splits):
  """Raises ValueError for values that the task lacks."""
  for name, split in splits.items():
    values = [('token code', split.tokens, task.vocab_size - 1),
              ('label', split.labels, task.num_classes)]
    if task.dual:
      values.append(('document number', split.pairs, len(split.offsets) - 1))
    for what, array, count in values:
      for value in (array.min(initial=0), array.max(initial=0)):
        if not 0 <= value < count:
          raise ValueError(f'{name} has the {what} {value}, which must be one '
                           f'of 0 to {count - 1:,}')


def _apart(splits):
  """Returns the splits to store; for pairs, adds a split of all documents."""
  shared = splits['train']
  if shared.pairs is None:
    return splits
  documents = len(shared.offsets) - 1
  return {_DOCUMENTS: dataclasses.replace(
      shared, labels=np.full(documents, -1),
      pairs=np.full((documents, 2), -1, np.int32)), **{
          name: dataclasses.replace(split, tokens=shared.tokens[:0],
                                    offsets=np.zeros(len(split) + 1, int))
          for name, split in splits.items()}}


def _together(stored):
  """Undoes `_apart`."""
  shared = stored.pop(_DOCUMENTS, None)
  return stored if shared is None else {
      name: dataclasses.replace(
          split, tokens=shared.tokens, offsets=shared.offsets)
      for name, split in stored.items()}
