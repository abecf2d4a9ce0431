"""Puts finished runs on the leaderboard, also from several processes at once.

`leaderboard.md`, the pages of the tasks, the figures and the CSV files depend
on the records only: not on the order of the files, the locale or the time zone.
Nothing here imports jax.

If two processes read the records and write the page at once, the slower one may
lose the other's row. So a lock beside the records protects the page.

Writing a page takes seconds, writing a record almost no time. So records have a
lock of their own. A new record leaves a mark, a file that is removed when a
page begun later is written. A process whose mark is gone need not write the
page. So many processes that publish at once wait for two pages, not for one
each.
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

from lra.board import data, figures, inputs, render, site, statistics
from lra.board.site import Content, Place
from lra.board.store import LeftOut
from lra.core import files, machine, paths, tasks
from lra.core.errors import UserError
from lra.core.formats import aligned, percent, points, quantity
from lra.core.terminal import say
from lra.schema import identity, result
from lra.schema.record import InvalidRecord
from lra.schema.result import Result

LOCK = '.leaderboard.lock'
RECORDS_LOCK = '.leaderboard.records.lock'
_MARK = '.new'
# A page takes seconds: a process with the lock for longer is stuck.
PATIENCE_SECONDS = 600
# A shorter wait prints no message.
_MOMENT_SECONDS = 1
_POLL_SECONDS = 0.05


def write(place: Place, html: pathlib.Path | None = None) -> list[LeftOut]:
  """Writes the pages, figures and CSV files, and removes stale ones.

  Every input is checked and every file is ready before the first is replaced.
  It takes no lock: if several processes write, the last one wins.

  Args:
    place: paths of the leaderboard.
    html: a folder for the page as HTML, `index.html`; None for none.

  Returns:
    The records that are not shown; the page names them too.

  Raises:
    UserError: see `site.load`; or a file cannot be written.
  """
  found = site.load(place)
  contents = {path: text.encode() for path, text in
              render.markdown(found).items()}
  contents |= {place.details / name: text.encode() for name, text in
               data.tables(found.boards, found.speeds).items()}
  drawn = figures.draw(figures_of(found), place.figures)
  contents |= {place.figures / name: data for name, data in drawn.items()}
  if html:
    contents[html / 'index.html'] = render.html(found, drawn, html).encode()
  stale = {*place.figures.glob('*.svg'), *(
      place.details / name for name in data.NAMES), *(
      place.details / f'{name}.md' for name in (
          *tasks.TASKS, 'mechanisms', 'published', 'reading'))} - set(contents)
  files.write_all(contents)
  for path in stale:
    path.unlink(missing_ok=True)
  return found.left_out


def figures_of(found: Content) -> list[figures.Figure]:
  """Returns the figures of all pages."""
  return [*figures.overview(found.boards),
          *figures.profiles(found.boards), *(
      figure for board in found.begun
      for figure in figures.task_figures(board, found.speeds))]


def check(place: Place, names: Iterable[str] = ()) -> None:
  """Checks before a run that its result can be published.

  Args:
    place: paths of the leaderboard.
    names: tasks of the runs to publish.

  Raises:
    UserError: a folder, a lock or the page cannot be written, or the published
      results or the speeds are not valid.
  """
  there = [(folder, flag) for folder, flag in (
      *((place.runs / task, 'results_dir') for task in names),
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
    inputs.published(place.published)
  if place.speeds:
    inputs.speeds(place.speeds)


def publish(run: Result, place: Place, *, replace: bool = False) -> None:
  """Adds a finished run to the records and makes the page again.

  If the run already has a record with another content, it prints a comparison
  and changes nothing.

  Args:
    run: its result.
    place: paths of the leaderboard.
    replace: put the new record in the old one's place.

  Raises:
    UserError: a file cannot be written, or the lock cannot be taken.
  """
  path = place.path(run)
  with _locked(place, RECORDS_LOCK):
    other = '' if replace else _differs(run, path)
    if other:
      say(f'{other}\nThe record and the page are unchanged; --replace puts '
          'your run in its place.')
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
  """Returns whether `publish` would change nothing.

  After a `publish` that was killed, something is left to do. A record with
  another content is left alone, unless `replace`.
  """
  path = place.path(run)
  if not path.exists():
    return False
  if _differs(run, path):
    return not replace
  return (
      place.page.exists() and not _marks(place, run) and
      place.page.stat().st_mtime >= path.stat().st_mtime)


def regenerate(place: Place, html: pathlib.Path | None = None) -> None:
  """Makes the page again from the records.

  Args:
    place: paths of the leaderboard.
    html: see `write`.

  Raises:
    UserError: see `publish`; or there are no records.
  """
  if not place.runs.is_dir():
    raise UserError(
        f'{place.results} has no records, which would be in runs/: '
        + ('the installed package has none, so give --results_dir=lra/results '
           'of a checkout, or record a run first.' if paths.installed() else
           'choose another --results_dir, or record a run there first.'))
  with _locked(place):
    _write(place, html)
  if html:
    print(f'wrote {html / "index.html"}')


def _mark(place, run):
  """Makes a mark: a file that shows a record newer than the page."""
  try:
    handle, name = tempfile.mkstemp(
        _MARK, _mark_name(place, run), place.results)
  except OSError as error:
    raise _cannot_write(place, error) from error
  os.close(handle)
  return pathlib.Path(name)


def _marks(place, run=None):
  """Returns the marks of a run, or of all runs that wait for the page."""
  return list(place.results.glob(f'{_mark_name(place, run)}*{_MARK}'))


def _mark_name(place, run):
  """Returns the first part of a mark's name, from its page and run."""
  page = hashlib.sha256(str(place.page.absolute()).encode()).hexdigest()[:8]
  name = f'{"-".join(run.record_path.with_suffix("").parts)}.' if run else ''
  return f'.leaderboard.{page}.{name}'


def _write(place, html=None):
  with _locked(place, RECORDS_LOCK):
    _clear(place)
    marks = _marks(place)
    newest = max(map(_time, place.runs.rglob('*.json')),
                 default=0)
  for record in write(place, html):
    say(f'left out: {record.name}: {record.why}')
  # If a clock was ahead, a record may be newer than its page.
  if place.page.stat().st_mtime_ns < newest:
    os.utime(place.page, ns=(newest, newest))
  for mark in marks:
    mark.unlink(missing_ok=True)
  print(f'wrote {place.page}')


def _clear(place):
  """Removes files of a killed writer; no other process writes now."""
  for folder in (place.runs, place.figures, place.details):
    for path in folder.rglob('.tmp-*'):
      with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _locked(place, name=LOCK) -> Iterator[None]:
  """Holds a lock of a place. To hold both locks, take the page's first."""
  path = place.results / name
  try:
    place.results.mkdir(parents=True, exist_ok=True)
    # Any user who may write in the folder may lock it.
    mode = 0o644 | place.results.stat().st_mode & 0o022
    lock = files.lock_file(path, mode)
    with contextlib.suppress(PermissionError):  # another user owns the lock
      os.fchmod(lock.fileno(), mode)  # despite the umask
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
  """Tries for some seconds to take a lock; returns whether it is taken."""
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


def _differs(run, path):
  """Returns how the run's record differs from the run; '' if it does not."""
  try:
    before = result.read_if_there(path)
  except InvalidRecord as error:
    return f'There is a record of this run, {path}, but {error.why}.'
  if before is None or _kept(before) == _kept(run):
    return ''
  return (f'{path} has this run already:\n{compare(before, run)}'
          f'{_reproduced(before, run)}')


def _reproduced(before, now):
  """Returns a line on whether the accuracies agree, '' if one is missing."""
  if None in (before.test, now.test):
    return ''
  expected = statistics.interval(statistics.Sample(
      (before.test.accuracy,), before.test.examples))
  agrees = expected.low <= now.test.accuracy <= expected.high
  return (f'\nYour run {"reproduces" if agrees else "does NOT reproduce"} the '
          f'recorded result: {percent(now.test.accuracy)}% is '
          f'{"within" if agrees else "outside"} its 95% interval, '
          f'{percent(expected.low)}% to {percent(expected.high)}%.')


def shared(run: Result) -> Result:
  """Returns a result without paths, which name users, for its record.

  These are not part of a run's identity (`lra.schema.identity`).
  """
  public = {}
  config = identity.without_paths(run.config)
  if config != run.config:
    public['config'] = config
  flags = list(dict.fromkeys(
      flag if re.match('[A-Z_]+=', flag) else machine.shown_flag(flag)
      for flag in run.xla_flags))
  if flags != run.xla_flags:
    public['xla_flags'] = flags
  return run.model_copy(update=public)


def _kept(run):
  """Returns the fields of a run without those that may be set later."""
  return shared(run).model_dump(exclude={'changes', 'git_published'})


def compare(before: Result, now: Result) -> str:
  """Returns a small table of two results of one run."""
  a, b = (getattr(run.test, 'accuracy', None) for run in (before, now))
  speeds = before.steps_per_s, now.steps_per_s
  lines = [
      ('', 'recorded', 'now', 'difference'),
      ('status', before.status, now.status, ''),
      ('test accuracy %', percent(a), percent(b),
       '' if None in (a, b) else f'{points(b - a)} points'),
      ('steps/s', *map(quantity, speeds),
       f'{speeds[1] / speeds[0] - 1:+.1%}' if all(speeds) else ''),
      ('commit', *map(_commit, (before, now)), ''),
      *((f'{name} file', *((getattr(run, f'{name}_sha256') or 'unknown')[:8]
                           for run in (before, now)), '')
        for name in ('model', 'config'))]
  return '\n'.join(f'  {line}' for line in aligned(lines))


def _commit(run):
  commit = (run.git_commit or 'unknown')[:8]
  return f'{commit} (modified)' if run.git_dirty else commit


def _time(path):
  """Returns a record's modification time in ns; 0 for a broken link."""
  try:
    return path.stat().st_mtime_ns
  except OSError:
    return 0
