"""Prepares each data set of the harness once and stores it with TFDS."""

import importlib
import os
import pathlib
import re
import sys

from lra.core import files, machine, paths, tasks
from lra.core.errors import UserError
from lra.data_prep import folders


def prepare(task_name: str, data_dir=None, source=None) -> pathlib.Path | None:
  """Prepares the data set of a task unless it is prepared already.

  An interrupted preparation leaves nothing behind that looks prepared. A second
  process waits for the first. Data made by an older version of data_prep are
  made again if their source is given, or if they are generated.

  Args:
    task_name: name of a task in `lra.core.tasks.TASKS`.
    data_dir: folder of data sets; $TFDS_DATA_DIR or ~/tensorflow_datasets by
      default.
    source: file or directory to make the data set from.

  Returns:
    The directory of the data set; None for a probe, which is not stored.

  Raises:
    UserError: the task or the source is wrong, the directory cannot be written,
      or data of another version or another source, or damaged ones, are there.
  """
  task = tasks.get(task_name)
  generated = f'{task_name} is generated, not prepared from files: leave out '
  if task.probe:
    if source:
      raise UserError(f'{generated}--source.')
    return None
  builder = make_builder(task_name, data_dir, source)
  if source and task.mini and builder.GENERATED and not task.own:
    raise UserError(f'{generated}--source, or take --task={task.dataset} for '
                    'the larger examples of the files.')
  path = pathlib.Path(builder.data_dir)
  try:
    if not _is_prepared(builder):
      builder.identify_source()  # raises before any folder is made
      _announce(builder, bool(data_dir or os.environ.get('TFDS_DATA_DIR')))
      with folders.lock(path.parent):
        if not _is_prepared(make_builder(task_name, data_dir, source)):
          folders.remove_leftovers(path)
          builder = make_builder(task_name, data_dir, source)
          builder.download_and_prepare()
  except (OSError, RuntimeError) as e:
    raise UserError(
        f'Cannot prepare {task_name} in {path} ({_reason(e)}): choose a '
        'directory with --data_dir or TFDS_DATA_DIR that can be written and '
        'has room.') from e
  if source:
    made = make_builder(task_name, data_dir).info.metadata or {}
    if made.get('source') not in (
        builder.identify_source(), builder.sizes_of_source()):
      raise UserError(
          f'{path} was prepared from another source, or {builder.source} has '
          f'changed since ({made.get("origin", "unknown")}): delete that '
          'directory or choose another --data_dir to use the source, or leave '
          'it out.')
  return path


def make_builder(task_name: str, data_dir=None, source=None):
  """Returns the `lra.data_prep.builder.Builder` of a task."""
  task = tasks.get(task_name)
  module = importlib.import_module(f'lra.data_prep.{task.dataset}')
  root = files.expanded(pathlib.Path(paths.data_dir(data_dir))).absolute()
  try:
    builder = getattr(module, task.dataset.capitalize())(
        data_dir=root, config=task.variant, file_format='array_record')
    dict(builder.info.metadata or {})  # raises here if it cannot be read
  except Exception as e:
    raise UserError(
        f'The data set in {root / task.dataset / task.variant} cannot be read '
        f'({e}): delete that directory and run the command again.') from e
  if source:
    source = pathlib.Path(paths.local(source, '--source'))
    builder.source = files.expanded(source).absolute()
  return builder


def _announce(builder, chosen):
  path = pathlib.Path(builder.data_dir)
  if path.exists():
    print(f'Making the data set in {path} again: it was made by another '
          f'version of {"its file" if builder.task.own else "data_prep"}.',
          file=sys.stderr)
  elif not chosen or builder.GENERATED and not builder.source:
    print(f'Preparing {builder.task.name} in {path}'
          f'{"." if chosen else "; TFDS_DATA_DIR chooses another place."}',
          file=sys.stderr)
  hours = builder.core_hours()
  if hours:
    cores = machine.cpu_count()
    print(f'Generating its data takes about {hours / cores:.1f} hours on '
          f'{cores} CPU core{"s" * (cores > 1)}, once; a run that is stopped '
          'keeps the finished parts.', file=sys.stderr)


def _is_prepared(builder):
  """Returns whether the data set is there; False: make it, perhaps again."""
  path = pathlib.Path(builder.data_dir)
  if not path.exists():
    return False
  made = builder.info.metadata or {}
  for fact in ('fingerprint', 'source'):
    if fact not in made:
      raise UserError(f'The data set in {path} is damaged (it lacks its {fact}'
                      '): delete that directory and run the command again.')
  definition = made.get('definition')
  if definition == builder.definition():
    builder.check_files()
    return True
  number = definition.get('number') if isinstance(definition, dict) else None
  if isinstance(number, int) and number > builder.DEFINITION:
    raise UserError(
        f'The data set in {path} was made by a newer version of data_prep '
        f'(definition {number}, here {builder.DEFINITION}): update this one, '
        'or choose another --data_dir or TFDS_DATA_DIR.')
  if builder.source or builder.GENERATED and made.get('source') is None:
    return False
  raise UserError(
      f'The data set in {path} was made by another version of data_prep: '
      f'make it again by {builder.command}=PATH, where PATH holds the data '
      'that it was made from.')


def _reason(error):
  """Returns why a file could not be written; raises an error of another cause.

  If array_record cannot write a file, it raises RuntimeError.
  """
  if isinstance(error, OSError):
    return error.strerror or error
  failed = re.search(r'\w+\(\) failed: ([^;]*)', str(error))
  if not failed:
    raise error
  return failed.group(1)


def read(task_name: str, data_dir=None):
  """Returns the data set of a task, a `lra.data_prep.content.Content`."""
  task = tasks.get(task_name)
  if task.probe:
    from lra.data_prep import probes
    return probes.generate(probes.VARIANTS[task.variant])
  from lra.data_prep import builder  # imports TFDS
  return builder.read(make_builder(task_name, data_dir))
