"""Packs the runs of a sweep into one tar file, to resume on another machine.

`pack` writes the files that an unfinished run needs to resume, and the results
and logs of a finished one. The first member, `manifest.json`, has the size and
the SHA-256 of every other one. `unpack` trusts nothing: it refuses members that
the manifest does not describe, and renames a run directory into its place in
one step.
"""

import collections
import contextlib
import fcntl
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence

from lra.core import files, signals
from lra.core.errors import UserError
from lra.data_prep import source as archives
from lra.many import kept
from lra.many.sweep import Entry
from lra.schema import identity
from lra.schema import result as result_lib

MANIFEST = 'manifest.json'
_FILES = ('config.json', 'env.json', 'metrics.jsonl', 'result.json',
          'curves.png', 'vocab.txt', 'tokenizer_config.json')
_RECORDS = 'records'  # folder in the bundle for the files of --results_dir/runs
# No valid bundle is larger: a state of the arena's models takes megabytes.
MAX_FILES, MAX_BYTES = 100_000, 64 * 2**30
_MAX_MANIFEST = 64 * 2**20
_TEMPORARY = '.unpacked-'
# A valid part of a path. A part of dots alone would name another folder.
_PART = re.compile(r'(?!\.+$)[A-Za-z0-9_.+=-]{1,200}')


def check(path: pathlib.Path) -> None:
  """Checks, before a sweep runs, that its bundle can be written.

  Raises:
    UserError: the bundle cannot be written.
  """
  try:
    if path.exists() and not path.is_file():
      raise OSError(None, 'it is not a regular file')
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.absolute().parent):
      pass
  except OSError as error:
    raise _cannot_write(path, error) from error


def _cannot_write(path, error):
  return UserError(f'Cannot write the bundle {path} ({error.strerror}): choose '
                   'another --bundle.')


def pack(path: pathlib.Path, entries: Sequence[Entry],
         results_dir: pathlib.Path) -> None:
  """Writes the bundle of some runs, all or nothing.

  Finished runs are packed without checkpoints, other runs with the newest
  checkpoint and its best parameters. A run that another process trains is left
  out.

  Args:
    path: the tar file.
    entries: the runs.
    results_dir: folder of records; the records of these runs are packed.

  Raises:
    UserError: the file cannot be written.
  """
  sources = {}
  with signals.unbroken(), contextlib.ExitStack() as held:
    for entry in entries:
      if held.enter_context(_locked(entry.folder)):
        for source in _of_run(entry):
          sources[source.as_posix()] = source
      else:
        print(f'{entry.folder} is in use by another process: it is not in the '
              'bundle.')
      record = _record(entry)
      if (results_dir / 'runs' / record).is_file():
        sources[f'{_RECORDS}/{record.as_posix()}'] = (
            results_dir / 'runs' / record)
    _write(path, sources)
  size = path.stat().st_size / 2**20
  print(f'wrote {path}: {len(sources)} files, {size:.1f} MiB', flush=True)


def _record(entry):
  """Returns the path of a run's record, relative to the folder of all records.
  """
  _, task, model, name = entry.folder.parts
  return pathlib.Path(task, f'{model}-{name}.json')


@contextlib.contextmanager
def _locked(folder) -> Iterator[bool]:
  """Holds the lock of a run directory; False if another process has it."""
  if not folder.is_dir():
    yield True
    return
  with files.lock_file(folder / '.lock') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      yield False
    else:
      yield True


def _of_run(entry):
  """Returns the files of a run directory that are packed."""
  found = [entry.folder / name for name in _FILES]
  if entry.status() not in result_lib.FINISHED:
    for checkpoint in _checkpoints(entry.folder):
      found += sorted(checkpoint.rglob('*'))
  return [path for path in found if path.is_file()]


def _checkpoints(folder):
  """Returns the newest state of a run, and the best parameters it refers to."""
  step, memory = kept.newest(folder)
  if not step:
    return []
  best = folder / 'checkpoints' / 'best'
  if 'best_step' in memory:  # else damaged: the run will report it
    best = best / str(memory['best_step'])
  return [folder / 'checkpoints' / 'last' / str(step), best]


def _write(path, sources):
  """Writes a bundle of files: {name in it: path}."""
  temporary = path.with_name(f'.tmp-{os.getpid()}-{path.name}')
  try:
    manifest = {name: dict(zip(('bytes', 'sha256'), _digest(source),
                               strict=True))
                for name, source in sorted(sources.items())}
    text = json.dumps({'files': manifest}, indent=1).encode()
    with tarfile.open(temporary, 'w', format=tarfile.PAX_FORMAT) as tar:
      tar.addfile(_member(MANIFEST, len(text)), io.BytesIO(text))
      for name, about in manifest.items():
        with open(sources[name], 'rb') as source:
          tar.addfile(_member(name, about['bytes']), source)
    os.replace(temporary, path)
  except OSError as error:
    raise _cannot_write(path, error) from error
  finally:
    temporary.unlink(missing_ok=True)


def _member(name, size):
  member = tarfile.TarInfo(name)
  member.size, member.mode = size, 0o644
  return member


def _digest(path):
  """Returns (bytes, SHA-256) of a file."""
  with open(path, 'rb') as file:
    digest = hashlib.file_digest(file, 'sha256').hexdigest()
    return file.tell(), digest


def unpack(path: pathlib.Path, entries: Sequence[Entry],
           results_dir: pathlib.Path) -> None:
  """Puts the runs and records of a bundle in their places.

  A run directory that exists here is kept if it has more steps than the
  bundle's, or was trained on other data. A record that exists here is always
  kept. A line is printed for each. Runs of another sweep stay in the bundle.

  Args:
    path: the tar file.
    entries: the runs of the sweep.
    results_dir: folder of records.

  Raises:
    UserError: the file is not a valid bundle. Runs unpacked before the error
      are complete.
  """
  try:
    with files.opened(path) as file:
      stream = archives.Bounded(file)
      with tarfile.open(fileobj=stream, mode='r:') as tar:
        members = _checked(path, tar, stream)
        stream.left = MAX_BYTES
        _unpack(path, tar, members, entries, results_dir)
  except (tarfile.TarError, EOFError, ValueError, ArithmeticError,
          RecursionError) as error:
    raise _refused(path, f'it cannot be read: {error}') from error
  except OSError as error:
    raise UserError(
        f'{error.filename or path} cannot be used '
        f'({error.strerror or error}): correct that, then repeat the command '
        'with another copy of the bundle or other folders.') from error


def _refused(path, why):
  return UserError(f'{path} is not a valid bundle ({why}): copy it again from '
                   'the machine that wrote it.')


def _checked(path, tar, stream):
  """Returns {name: (member, its SHA-256)} of a bundle that fits its manifest.
  """
  first = tar.next()
  if first is None or first.name != MANIFEST or first.type != tarfile.REGTYPE:
    raise _refused(path, f'it does not begin with {MANIFEST}')
  if first.size > _MAX_MANIFEST:
    raise _refused(path, f'{MANIFEST} is too large')
  stream.expect(first)
  try:
    said = json.loads(tar.extractfile(first).read())['files']
    manifest = {name: (about['bytes'], about['sha256'])
                for name, about in said.items()}
  except (ValueError, KeyError, TypeError, AttributeError,
          RecursionError) as error:
    raise _refused(path, f'{MANIFEST} cannot be read') from error
  members = {}
  while (member := tar.next()) is not None:
    why = _wrong(member, manifest, members)
    if why:
      raise _refused(path, f'{ascii(member.name)[:200]} {why}')
    members[member.name] = member, manifest[member.name][1]
    stream.expect(member)
  if len(members) < len(manifest):
    missing = min(manifest.keys() - members.keys())
    raise _refused(path, f'{ascii(missing)[:200]} is missing')
  return members


def _wrong(member, manifest, members):
  """Returns why a member is refused, '' if it is valid."""
  if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or (
      member.issparse()):
    return 'is not a regular file'
  if member.name.startswith('/') or '..' in member.name.split('/'):
    return 'is outside the folder'
  if not all(map(_PART.fullmatch, member.name.split('/'))):
    return 'has a name that no file of a run has'
  if member.name in members:
    return 'is there twice'
  if len(members) >= MAX_FILES or member.size + sum(
      m.size for m, _ in members.values()) > MAX_BYTES:
    return 'makes it larger than a bundle can be'
  if member.name not in manifest:
    return f'is not in {MANIFEST}'
  if member.size != manifest[member.name][0]:
    return f'has another size than in {MANIFEST}'
  return ''


def _unpack(path, tar, members, entries, results_dir):
  ours = {entry.folder.as_posix(): entry for entry in entries}
  records = {f'{_RECORDS}/{_record(e).as_posix()}': results_dir / 'runs'
             / _record(e) for e in entries}
  runs, others = collections.defaultdict(dict), set()
  for name, (member, digest) in members.items():
    folder = '/'.join(name.split('/')[:4])
    if folder in ours and name.count('/') > 3:
      runs[folder][name[len(folder) + 1:]] = member, digest
    elif name not in records:
      others.add(folder)
  for folder, content in runs.items():
    _place(path, tar, pathlib.Path(folder), content)
  for name in sorted(records.keys() & members.keys()):
    _place_record(path, tar, records[name], *members[name])
  if others:
    print(f'{len(others)} runs and records of the bundle do not belong to this '
          'sweep and stay in it.')
  print(f'{len(runs)} runs of {path} are here.', flush=True)


def _place(path, tar, folder, content):
  """Unpacks a run beside its place and moves it there, unless one stays."""
  folder.parent.mkdir(parents=True, exist_ok=True)
  for left in folder.parent.glob(f'{_TEMPORARY}{folder.name}-*'):
    shutil.rmtree(left)  # a killed process left it
  temporary = pathlib.Path(tempfile.mkdtemp(
      prefix=f'{_TEMPORARY}{folder.name}-', dir=folder.parent))
  try:
    new = temporary / 'new'
    for name, (member, digest) in content.items():
      _extract(path, tar, member, digest, new / name)
    _check_run(path, new, folder)
    with _locked(folder) as free:
      why = _kept(folder, new) if free else 'another process trains in it'
      if why:
        print(f'{folder} is kept: {why}.')
      elif why is None:
        if folder.exists():
          os.rename(folder, temporary / 'old')
        os.rename(new, folder)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)


def _extract(path, tar, member, digest, target):
  target.parent.mkdir(parents=True, exist_ok=True)
  summed = hashlib.sha256()
  with tar.extractfile(member) as source, open(target, 'wb') as file:
    while block := source.read(2**20):
      summed.update(block)
      file.write(block)
  if summed.hexdigest() != digest:
    raise _refused(
        path, f'{ascii(member.name)[:200]} differs from {MANIFEST}')


def _check_run(path, new, folder):
  """Raises UserError if the unpacked files are not the run of a folder."""
  try:
    config = files.read_json(new / 'config.json')
    same = identity.run_folder(config) == folder
  except (UserError, KeyError, TypeError, AttributeError):
    same = False
  if not same:
    raise _refused(path, f'{folder}/config.json is not the config of this run')


def _kept(folder, new):
  """Returns why the run directory here stays; '' if both are the same.

  Returns None if the run of the bundle replaces it.
  """
  if not (folder / 'config.json').exists():
    return None
  here, there = _standing(folder), _standing(new)
  data = [_environment(run).get('data_fingerprint') for run in (folder, new)]
  if None not in data and data[0] != data[1]:
    return 'it was trained on other data than the run in the bundle'
  if here > there:
    return (f'it is at step {here[1]:,}, the run in the bundle at step '
            f'{there[1]:,}')
  if here < there:
    return None
  same = (folder / 'metrics.jsonl', new / 'metrics.jsonl')
  texts = [p.read_bytes() if p.exists() else b'' for p in same]
  return '' if texts[0] == texts[1] else (
      'it differs from the run in the bundle, which is at the same step')


def _standing(folder):
  """Returns (whether a run is finished, its step)."""
  try:
    result = result_lib.read_if_there(folder / 'result.json')
  except UserError:
    result = None
  if result is not None and result.finished:
    return True, result.steps
  return False, kept.newest(folder)[0]


def _environment(folder):
  try:
    value = files.read_json(folder / 'env.json')
  except UserError:
    value = None
  return value if isinstance(value, dict) else {}


def _place_record(path, tar, target, member, digest):
  """Unpacks a record, unless it is here already."""
  if target.exists():
    if _digest(target)[1] != digest:
      print(f'{target} is kept: it differs from the record in the bundle.')
    return
  target.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
      prefix='.tmp-', dir=target.parent) as temporary:
    new = pathlib.Path(temporary, 'new')
    _extract(path, tar, member, digest, new)
    os.rename(new, target)
