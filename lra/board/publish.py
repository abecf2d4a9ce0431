"""Puts finished runs on the leaderboard, also from several processes at once.

The pages, figures and CSV files depend on the records only: not on the order of
the files, the locale or the time zone. Nothing here imports jax.

A record is written at once, and a lock protects the page: if two processes read
the records and wrote the page at the same time, the slower one could lose the
other's row. The page has the time at which its records were read. So a record
that is older than the page is on it, whoever was killed, and of many processes
that wait for the lock few must write a page.
"""

import collections
import contextlib
import fcntl
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence

from lra.board import inputs, site
from lra.board.site import Content, Place
from lra.core import files, machine, paths, tasks
from lra.core.errors import UserError
from lra.core.formats import aligned, percent, points, quantity
from lra.core.terminal import say
from lra.schema import identity, result
from lra.schema.record import InvalidRecord
from lra.schema.result import Result

LOCK = '.leaderboard.lock'
# A page takes seconds: a process with the lock for longer is stuck.
PATIENCE_SECONDS = 600
# A shorter wait prints no message.
_MOMENT_SECONDS = 1


def write(place: Place, html: pathlib.Path | None = None, *,
          all_figures: bool = True) -> tuple[Content, list[pathlib.Path]]:
  """Writes the changed pages, figures and CSV files, and removes stale ones.

  Every input is checked and every file is ready before the first is replaced.
  It takes no lock. Without `all_figures`, only those with a record newer than
  the page are drawn again. The HTML pages and their figures are in the folder
  `html`. Returns what the pages show, and the other files that changed.
  """
  # Imported late: they take seconds.
  from lra.board import charts, data, render, suite_charts
  began, found, drawn = _now(place), site.load(place), {}
  for figure in [*suite_charts.every(found), *(
      one for board in found.begun for one in charts.of_task(board))]:
    path = place.figures / figure.name
    kept = not all_figures and path.is_file() and all(
        _is_shown(place, place.runs / task) for task in figure.tasks)
    drawn[figure.name] = path.read_bytes() if kept else figure.draw()
  texts = render.markdown(found) | {
      place.details / name: text for name, text in
      data.csv_files(found.boards, found.speeds).items()}
  contents = {place.figures / name: svg for name, svg in drawn.items()}
  stale = {*place.figures.glob('*.svg')}
  if html:
    texts |= render.html(found, html)
    contents |= {html / 'figures' / name: svg for name, svg in drawn.items()}
    stale |= {html / f'{name}.html' for name in tasks.TASKS}
  page = texts.pop(place.page).encode()
  contents |= {path: text.encode() for path, text in texts.items()}
  stale |= {*place.pages.glob('*.md'), *(place.details / name for name in (
      *data.NAMES, 'mechanisms.md', 'published.md', 'reading.md')), *(
          path for path in place.details.glob('*.md')
          if path.is_file() and b'](reading.md)\n' in path.read_bytes())}
  changed = {path: new for path, new in contents.items()
             if not path.is_file() or path.read_bytes() != new}
  # The last file to be replaced; its time is that of the records.
  files.write_all(changed | {place.page: page}, began)
  for path in stale - set(contents):
    path.unlink(missing_ok=True)
  return found, [*changed]


def check(place: Place, names: Iterable[str] = ()) -> None:
  """Raises UserError if results of some tasks could not be published."""
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
  lock = place.results / LOCK
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
  """Adds a finished run to the records, and prints where it stands on the page.

  If the run already has a record with another content, it prints a comparison
  and changes nothing, unless `replace`.
  """
  publish_all([run], place, replace=replace)


def publish_all(runs: Sequence[Result], place: Place, *,
                replace: bool = False) -> None:
  """Publishes several finished runs, and writes the page only once."""
  for run in runs:
    path = place.path(run)
    if replace or not path.exists():
      # A record without the description of its own task would not be shown.
      files.write_all({path.parent / name: data for name, data in (
          tasks.described(tasks.get(run.task)).items())})
      result.write(path, shared(run))
  with _locked(place):
    new = []
    for run in runs:
      path = place.path(run)
      other = _differs(run, path)
      if other:
        say(f'{other}\nThe record and the page are unchanged; --replace puts '
            'your run in its place.')
      elif _is_shown(place, path):
        print(f'{place.page} has this run: another process has written it')
      else:
        new.append(run)
    if new:
      from lra.board import mechanisms  # imported late, like `charts`
      found = _write(place, all_figures=False)
      said = [(mechanisms.standing(
          [board for board in found.boards if board.task.name == run.task],
          place.path(run).relative_to(place.results).as_posix()), run.task)
          for run in new]
      for words, task in dict.fromkeys(said):  # seeds of a row say the same
        if words:
          print(f'{words}; {paths.shown(place.details / f"{task}.md")}')


def done(run: Result, place: Place, *, replace: bool = False) -> bool:
  """Returns whether `publish` would change nothing.

  After a `publish` that was killed, something is left to do.
  """
  path = place.path(run)
  if not path.exists():
    return False
  return not replace if _differs(run, path) else _is_shown(place, path)


def regenerate(place: Place, html: pathlib.Path | None = None) -> None:
  """Makes the page again from the records, also as HTML in the folder `html`.
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


def _write(place, html=None, all_figures=True):
  found, changed = write(place, html, all_figures=all_figures)
  for record in found.left_out:
    say(f'left out: {record.name}: {record.why}')
  number = collections.Counter(path.parent for path in changed)
  print('wrote ' + ', '.join([str(paths.shown(place.page)), *(
      f'{count} files in {paths.shown(folder)}' if count > 1 else
      str(paths.shown(next(p for p in changed if p.parent == folder)))
      for folder, count in sorted(number.items()))]))
  return found


def _is_shown(place, path):
  """Returns whether the page was begun after a change of a record or folder."""
  return place.page.exists() and place.page.stat().st_mtime_ns > max(
      map(_changed, (path, *path.glob('*.json'))))


def _changed(path):
  """Returns when a file got its content and name, in ns; 0 if it is missing."""
  try:
    return path.stat().st_ctime_ns
  except OSError:
    return 0


def _now(place):
  """Returns the file system's time in ns, if possible later than all records.
  """
  newest = max(map(_changed, place.runs.rglob('*.json')), default=0)
  for _ in range(20):  # the clock of a file system ticks every few milliseconds
    with tempfile.TemporaryFile(dir=place.results) as file:
      now = os.fstat(file.fileno()).st_ctime_ns
    if now > newest:
      break
    time.sleep(0.005)
  return now


@contextlib.contextmanager
def _locked(place) -> Iterator[None]:
  path = place.results / LOCK
  with contextlib.ExitStack() as stack:
    try:
      place.results.mkdir(parents=True, exist_ok=True)
      # Any user who may write in the folder may lock it.
      mode = 0o644 | place.results.stat().st_mode & 0o022
      lock = stack.enter_context(files.lock_file(path, mode))
      with contextlib.suppress(PermissionError):  # another user owns the lock
        os.fchmod(lock.fileno(), mode)  # despite the umask
      taken = _taken(lock, _MOMENT_SECONDS)
      if not taken:
        say('Another process is writing the leaderboard: waiting for '
            f'{path}.')
        taken = _taken(lock, PATIENCE_SECONDS)
    except OSError as error:
      raise UserError(
          f'Cannot write to {place.results} ({error.strerror or error}): '
          'choose another --results_dir.') from error
    if not taken:
      raise UserError(
          f'Another process has kept {path} for {PATIENCE_SECONDS // 60} '
          'minutes: end it and repeat the command.')
    yield


def _taken(lock, seconds):
  """Tries for some seconds to take a lock; returns whether it is taken."""
  last = time.monotonic() + seconds
  while True:
    with contextlib.suppress(BlockingIOError):
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return True
    if time.monotonic() >= last:
      return False
    time.sleep(0.05)


def _differs(run, path):
  """Returns how the run's record differs from the run; '' if it does not."""
  try:
    before = result.read_if_there(path)
  except InvalidRecord as error:
    return f'There is a record of this run, {path}, but {error.why}.'
  # Fields that may be set later do not count.
  kept = lambda run: shared(run).model_dump(
      exclude={'changes', 'git_published'})
  return '' if before is None or kept(before) == kept(run) else (
      f'{path} has this run already:\n{compare(before, run)}')


def shared(run: Result) -> Result:
  """Returns a result without paths, which name users, for its record.

  These are not part of a run's identity (`lra.schema.identity`).
  """
  flags = list(dict.fromkeys(
      flag if re.match('[A-Z_]+=', flag) else machine.shown_flag(flag)
      for flag in run.xla_flags))
  public = {'config': identity.without_paths(run.config), 'xla_flags': flags}
  return run.model_copy(update={name: value for name, value in public.items()
                                if value != getattr(run, name)})


def compare(before: Result, now: Result) -> str:
  """Returns a small table of two results of one run, and whether they agree."""
  from lra.board import statistics  # imported late, since it needs SciPy
  both = before, now
  a, b = (getattr(run.test, 'accuracy', None) for run in both)
  tested = None not in (a, b)

  def short(digest):
    return (digest or 'unknown')[:8]

  lines = [
      ('', 'recorded', 'now', 'difference'),
      ('status', before.status, now.status, ''),
      ('test accuracy %', percent(a), percent(b),
       f'{points(b - a)} points' if tested else ''),
      ('steps/s', *(quantity(run.steps_per_s) for run in both),
       f'{now.steps_per_s / before.steps_per_s - 1:+.1%}'
       if before.steps_per_s and now.steps_per_s else ''),
      ('commit', *(short(run.git_commit) + ' (modified)' * bool(run.git_dirty)
                   for run in both), ''),
      ('model file', *(short(run.model_sha256) for run in both), ''),
      ('config file', *(short(run.config_sha256) for run in both), '')]
  text = '\n'.join(f'  {line}' for line in aligned(lines))
  if not tested:
    return text
  low, high, _ = statistics.interval(statistics.Sample(
      (a,), before.test.examples))
  does, within = ('reproduces', 'within') if low <= b <= high else (
      'does NOT reproduce', 'outside')
  return (f'{text}\nYour run {does} the recorded result: {percent(b)}% is '
          f'{within} its 95% interval, {percent(low)}% to {percent(high)}%.')
