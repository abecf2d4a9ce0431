"""Writes the leaderboard from the committed records.

`leaderboard.md`, the pages of the tasks and the figures are a function of the
records: no byte depends on the order of the files, the locale or the time
zone. Nothing here imports jax.
"""

import pathlib

from lra import files, tasks
from lra.records.store import LeftOut
from lra.report import figures, render, tables
from lra.report.site import OURS as RESULTS
from lra.report.site import Place
from lra.report.tables import Content

PAGE = RESULTS.parents[1] / 'leaderboard.md'


def pages(place: Place) -> dict[pathlib.Path, str]:
  """Returns the text of every Markdown page.

  Raises:
    UserError: a published row is not valid, and names its line; or the speeds
      are not.
  """
  return render.markdown(tables.load(place))


def write(place: Place, html: pathlib.Path | None = None) -> list[LeftOut]:
  """Writes the pages and figures, and removes stale ones.

  Every input is checked and every file is ready before the first is replaced.
  If several processes write, the last one wins: see `lra.report.publish`.

  Args:
    place: paths of the leaderboard.
    html: a folder for the page as HTML, `index.html`; None for none.

  Returns:
    The records that are not shown; the page names them too.

  Raises:
    UserError: see `pages`; or a file cannot be written.
  """
  found = tables.load(place)
  contents = {path: text.encode() for path, text in
              render.markdown(found).items()}
  drawn = figures.draw(figures_of(found), place.figures)
  contents |= {place.figures / name: data for name, data in drawn.items()}
  if html:
    contents[html / 'index.html'] = render.html(found, drawn, html).encode()
  stale = {*place.figures.glob('*.svg'), *(
      place.details / f'{task}.md' for task in tasks.TASKS)} - set(contents)
  files.write_all(contents)
  for path in stale:
    path.unlink(missing_ok=True)
  return found.left_out


def figures_of(found: Content) -> list[figures.Figure]:
  """Returns the figures of all pages."""
  return [*figures.overview(found.boards), *(
      figure for board in found.boards
      for figure in figures.of_task(board, found.speeds))]
