"""Puts finished runs on the leaderboard, whoever else does so meanwhile.

The page is made from all records. Of two processes that each read the records
and write the page, the slower would write a page without the other's row; so
this happens under a lock beside the records. A page takes seconds, a record
next to nothing: it has a lock of its own, and a mark beside it until a page
that was begun later is there. Who finds its mark gone has nothing to write, so
many who publish at once wait for two pages, not for as many as they are.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Iterable, Iterator

from lra import files, machine
from lra.errors import UserError
from lra.report import leaderboard, published, result, speeds
from lra.report.formats import percent, points, quantity
from lra.report.record import Unsound
from lra.report.result import Result
from lra.report.site import Place
from lra.terminal import say

LOCK = '.leaderboard.lock'
RECORDS_LOCK = '.leaderboard.records.lock'
_MARK = '.new'
# A page takes seconds; whoever holds the lock longer is stopped or hangs.
PATIENCE_SECONDS = 600
# Nobody need be told of a shorter wait.
_MOMENT_SECONDS = 1
_POLL_SECONDS = 0.05


def check(place: Place, tasks: Iterable[str] = ()) -> None:
  """Finds before a run what would keep its result from being published.

  Args:
    place: where the leaderboard is.
    tasks: of the runs that are to be published.

  Raises:
    UserError: a folder, a lock or the page cannot be written, or the published
      results or the speeds are not sound.
  """
  there = [(folder, flag) for folder, flag in (
      *((place.runs / task, 'results_dir') for task in tasks),
      (place.figures, 'results_dir'), (place.details, 'page'))
      if folder.exists()]
  for folder, flag in (
      (place.results, 'results_dir'), (place.runs, 'results_dir'), *there,
      (pathlib.Path(os.path.realpath(place.page)).parent, 'page')):
    try:
      folder.mkdir(parents=True, exist_ok=True)
      with tempfile.TemporaryFile(dir=folder):
        pass
    except OSError as error:
      raise UserError(
          f'Cannot write to {folder} ({error.strerror}): choose another '
          f'--{flag}, or --norecord.') from error
  for lock in (place.results / name for name in (LOCK, RECORDS_LOCK)):
    if lock.exists() and not os.access(lock, os.R_OK | os.W_OK):
      raise UserError(
          f'Cannot write {lock}: have its owner run chmod a+rw on it, or '
          'choose another --results_dir, or --norecord.')
  if place.page.exists() and not place.page.is_file():
    raise UserError(f'{place.page} is no regular file: choose another --page.')
  if place.published:
    published.read(place.published)
  if place.speeds:
    speeds.read(place.speeds)


def publish(run: Result, place: Place, *, replace: bool = False) -> None:
  """Adds a finished run to the records and makes the page again.

  Where there is a record of the same run already, which says something else,
  both are compared and nothing is changed.

  Args:
    run: its result.
    place: where the leaderboard is.
    replace: put the new record in the old one's place.

  Raises:
    UserError: a file cannot be written, or the lock is not to be had.
  """
  path = place.path(run)
  with _locked(place, RECORDS_LOCK):
    told = '' if replace else _told_otherwise(run, path)
    if told:
      say(f'{told}\nNothing was changed: --replace puts this run in its place.')
      return
    mark = _mark(place, run)
    if not path.exists() or replace:
      result.write(path, shared(run))
  with _locked(place):
    if mark.exists():
      _write(place)
    else:
      print(f'{place.page} has this run: another process has written it')


def done(run: Result, place: Place, *, replace: bool = False) -> bool:
  """Whether `publish` would change nothing: it may be killed in between.

  Where the record says something else of the run it stays, unless `replace`.
  """
  path = place.path(run)
  if not path.exists():
    return False
  if _told_otherwise(run, path):
    return not replace
  return (
      place.page.exists() and not _marks(place, run) and
      place.page.stat().st_mtime >= path.stat().st_mtime)


def regenerate(place: Place, html: pathlib.Path | None = None) -> None:
  """Makes the page again from the records.

  Args:
    place: where the leaderboard is.
    html: see `leaderboard.write`.

  Raises:
    UserError: as `publish`, or there are no records.
  """
  if not place.runs.is_dir():
    raise UserError(
        f'{place.results} has no records, which would be in runs/: choose '
        'another --results_dir, or record a run there first.')
  with _locked(place):
    _write(place, html)
  if html:
    print(f'wrote {html / "index.html"}')


def _mark(place, run):
  """Makes a mark: the record of a run is newer than the page."""
  try:
    handle, name = tempfile.mkstemp(
        _MARK, _mark_name(place, run), place.results)
  except OSError as error:
    raise _cannot_write(place, error) from error
  os.close(handle)
  return pathlib.Path(name)


def _marks(place, run=None):
  """The marks of a run, or of all that wait for the page."""
  return list(place.results.glob(f'{_mark_name(place, run)}*{_MARK}'))


def _mark_name(place, run):
  """How a mark begins: which page, which run."""
  page = hashlib.sha256(str(place.page.absolute()).encode()).hexdigest()[:8]
  name = f'{"-".join(run.record_path.with_suffix("").parts)}.' if run else ''
  return f'.leaderboard.{page}.{name}'


def _write(place, html=None):
  with _locked(place, RECORDS_LOCK):
    _clear(place)
    marks = _marks(place)
    newest = max(map(_time, place.runs.rglob('*.json')),
                 default=0)
  for record in leaderboard.write(place, html):
    say(f'left out: {record.name}: {record.why}')
  # By a clock that was ahead a record may be newer than its page.
  if place.page.stat().st_mtime_ns < newest:
    os.utime(place.page, ns=(newest, newest))
  for mark in marks:
    mark.unlink(missing_ok=True)
  print(f'wrote {place.page}')


def _clear(place):
  """Removes what a writer that was killed has left; nobody else writes now."""
  for folder in (place.runs, place.figures, place.details):
    for path in folder.rglob('.tmp-*'):
      with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _locked(place, name=LOCK) -> Iterator[None]:
  """Holds a lock of a place; the one of the page is taken first."""
  path = place.results / name
  try:
    place.results.mkdir(parents=True, exist_ok=True)
    # Who may write in the folder may lock it, whoever did so first.
    mode = 0o644 | place.results.stat().st_mode & 0o022
    lock = files.lock_file(path, mode)
    with contextlib.suppress(PermissionError):  # its owner has seen to it
      os.fchmod(lock.fileno(), mode)  # whatever the umask says
  except OSError as error:
    raise _cannot_write(place, error) from error
  with lock:
    try:
      taken = _taken(lock, _MOMENT_SECONDS)
      if not taken:
        say(f'Another process is writing the leaderboard: waiting for {path}.')
        taken = _taken(lock, PATIENCE_SECONDS)
    except OSError as error:
      raise _cannot_write(place, error) from error
    if not taken:
      raise UserError(
          f'Another process has kept {path} for {PATIENCE_SECONDS // 60} '
          'minutes: end it and repeat the command.')
    yield


def _taken(lock, seconds):
  """Whether a lock was to be had within so many seconds."""
  last = time.monotonic() + seconds
  while True:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return True
    except BlockingIOError:
      if time.monotonic() >= last:
        return False
    time.sleep(_POLL_SECONDS)


def _cannot_write(place, error):
  return UserError(
      f'Cannot write to {place.results} ({error.strerror or error}): choose '
      'another --results_dir.')


def _told_otherwise(run, path):
  """What a record says of this run, if something else; '' if not."""
  try:
    before = result.read_if_there(path)
  except Unsound as error:
    return f'There is a record of this run, {path}, but {error.why}.'
  if before is None or _kept(before) == _kept(run):
    return ''
  return f'{path} has this run already:\n{compare(before, run)}'


def shared(run: Result) -> Result:
  """A result as its record has it: without paths, which name users.

  Where the data was is no part of a run's identity (`lra.identity`).
  """
  public = {}
  if run.config.get('data_dir'):
    public['config'] = {**run.config, 'data_dir': ''}
  flags = list(dict.fromkeys(
      flag if re.match('[A-Z_]+=', flag) else machine.shown_flag(flag)
      for flag in run.xla_flags))
  if flags != run.xla_flags:
    public['xla_flags'] = flags
  return run.model_copy(update=public)


def _kept(run):
  """What a run has said, without what may have been found out later."""
  return shared(run).model_dump(exclude={'changes', 'git_published'})


def compare(before: Result, now: Result) -> str:
  """A small table of two results of one run."""
  lines = [('', 'recorded', 'now', 'difference'),
           ('status', before.status, now.status, '')]
  a, b = (getattr(run.test, 'accuracy', None) for run in (before, now))
  gain = '' if None in (a, b) else f'{points(b - a)} points'
  lines.append(('test accuracy %', percent(a), percent(b), gain))
  a, b = before.steps_per_s, now.steps_per_s
  lines += [
      ('steps/s', quantity(a), quantity(b), f'{b / a - 1:+.1%}' if a and b
       else ''),
      ('commit', *map(_commit, (before, now)), ''),
      ('model file', *(_digest(run.model_sha256) for run in (before, now)), ''),
      ('config file', *(_digest(run.config_sha256) for run in (before, now)),
       '')]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return '\n'.join('  ' + '  '.join(
      cell.ljust(width) for cell, width in zip(line, widths, strict=True)
  ).rstrip() for line in lines)


def _commit(run):
  commit = (run.git_commit or 'unknown')[:8]
  return f'{commit} (modified)' if run.git_dirty else commit


def _digest(text):
  return (text or 'unknown')[:8]


def _time(path):
  """When a record was written, in ns; 0 of a link that leads nowhere."""
  try:
    return path.stat().st_mtime_ns
  except OSError:
    return 0
