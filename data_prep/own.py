"""Own tasks: data that the file `configs/tasks/NAME.py` of a user makes.

docs/add-a-task.md describes the file. Its `make()` returns the documents
(bytes) and labels of each split. Data are made again if the file has changed.
"""

import hashlib
import pathlib

from lra.core import files, signals, tasks
from lra.core.errors import UserError, explained
from lra.data_prep.builder import Builder, check_ranges, configs
from lra.data_prep.content import SPLITS, Content, split_of
from lra.data_prep.source import Origin


class Own(Builder):
  """Data of a user's own task."""
  GENERATED = True
  origin = Origin('own data', 'no file: the file of the task names its sources')

  def __init__(self, *, config, **options):
    made, = configs(**{config: 'an own task'})
    super().__init__(config=made, **options)

  @property
  def _file(self) -> pathlib.Path | None:
    return tasks.file(self.builder_config.name)

  @property
  def _names(self) -> dict:
    return tasks.contents(self.builder_config.name)

  def parameters(self):
    return {'file': self._names['DIGEST']}

  def definition(self):
    if self._file:
      return super().definition()
    return (self.info.metadata or {}).get('definition') or {}

  def identify_source(self):
    name = self.builder_config.name
    if self.source:
      raise UserError(f'The file of {name} names its sources: leave out '
                      '--source.')
    if not self._file:
      raise UserError(
          f'{self.data_dir} is not prepared, and {tasks.FOLDER / name}.py, '
          'which makes the data, is not here: copy it from where the task was '
          'made, or set TFDS_DATA_DIR to a folder that has its data.')
    return None

  def check_files(self):
    super().check_files()
    if self._file:
      self._check_sources(missing=True)

  def _check_sources(self, missing=False):
    """Raises UserError if a source has another content than the file says."""
    for path, known in self._names.get('SOURCES', {}).items():
      if missing and not pathlib.Path(path).exists():
        continue
      if digest(path) != known:
        raise UserError(
            f'{path} has changed since {self._file} was written, and '
            f'{self.builder_config.name} is the task of the old file: give '
            'the new one another --name, or delete '
            f'{self._file} to describe it anew.')

  def make(self, files):
    del files  # the task's file knows its sources
    task, path = self.task, str(self._file)
    self._check_sources()
    if not callable(self._names.get('make')):
      raise UserError(f'{path} has no function make, which returns the data: '
                      'see docs/add-a-task.md.')
    try:
      made = self._names['make']()
      splits = {name: _split(task, name, *made[name]) for name in SPLITS}
      check_ranges(task, splits)
    except (UserError, signals.Stop):
      raise
    except (Exception, SystemExit) as e:  # a user's file may raise anything
      raise UserError(explained(path, e)) from e
    return Content(splits, {'origin': ', '.join(
        f'{pathlib.Path(source).name} ({known[:8]})' for source, known in
        self._names.get('SOURCES', {}).items()) or f'{task.name}.py'})


def _split(task, name, documents, labels):
  """Makes a split of documents, which are cut to the length of the task."""
  if not len(documents) or len(documents) != len(labels):
    raise ValueError(f'{name} has {len(documents)} documents and '
                     f'{len(labels)} labels')
  if not all(documents):
    raise ValueError(f'{name} has an empty document')
  if task.image and {*map(len, documents)} != {task.seq_len}:
    raise ValueError(f'{name} has an image without {task.seq_len} pixels')
  return split_of([bytes(d[:task.seq_len]) for d in documents], labels)


def digest(path) -> str:
  """Returns the SHA-256 of a file."""
  try:
    with files.opened(path) as f:
      return hashlib.file_digest(f, 'sha256').hexdigest()
  except OSError as e:
    raise UserError(f'{path} cannot be read ({e.strerror}): restore it, or '
                    'correct its path.') from e
