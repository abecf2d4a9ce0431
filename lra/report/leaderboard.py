"""Writes `leaderboard.md` and its figures from the committed records.

The page is a pure function of the records: its bytes do not depend on the
order of the files, the locale or the time zone. Nothing here imports jax.
"""

import os
import pathlib

from lra import files
from lra.report import content, figures, records, webpage
from lra.report import page as markdown_page
from lra.report import site as sites
from lra.report.site import Command, Site

_HERE = pathlib.Path(__file__).resolve().parents[1]
RESULTS = _HERE / 'results'
PAGE = _HERE.parent / 'leaderboard.md'

def render(page: str | os.PathLike = PAGE,
           runs_dir: str | os.PathLike = RESULTS / 'runs',
           floors_dir: str | os.PathLike = RESULTS / 'floors',
           published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
           figures_dir: str | os.PathLike = RESULTS / 'figures',
           speed_json: str | os.PathLike | None = RESULTS / 'speed.json',
           command: Command | None = None,
           usual_floors: str | os.PathLike | None = None) -> str:
  """Returns the page; for its arguments see `write`.

  Raises:
    UserError: a published row is not sound, and names its line; or the speeds
      are not.
  """
  return markdown_page.render(
      _load(runs_dir, floors_dir, published_csv, speed_json, usual_floors),
      _site(page, runs_dir, figures_dir), command)


def write(page: str | os.PathLike = PAGE,
          runs_dir: str | os.PathLike = RESULTS / 'runs',
          floors_dir: str | os.PathLike = RESULTS / 'floors',
          published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
          figures_dir: str | os.PathLike = RESULTS / 'figures',
          speed_json: str | os.PathLike | None = RESULTS / 'speed.json',
          html: pathlib.Path | None = None,
          command: Command | None = None,
          usual_floors: str | os.PathLike | None = None
          ) -> list[records.LeftOut]:
  """Writes the page and its figures, and removes figures it no longer has.

  Every input is checked and every file is ready before the first is replaced.
  Of several writers the last one wins: see `lra.report.publish`.

  Args:
    page: the file to write.
    runs_dir, floors_dir, published_csv, speed_json: see `content.load`.
    figures_dir: folder of the figures.
    html: a folder for the page as HTML, `index.html`; None for none.
    command: the command line that makes runs again, which the page shows;
      None for none.
    usual_floors: see `content.load`.

  Returns:
    The records that are not on the page, which names them too.

  Raises:
    UserError: as `render`, or a file cannot be written.
  """
  site = _site(page, runs_dir, figures_dir)
  folder = site.figures
  found = _load(
      runs_dir, floors_dir, published_csv, speed_json, usual_floors)
  text = markdown_page.render(found, site, command)
  drawn = figures.draw(found.boards, found.speeds)
  contents = {folder / name: data for name, data in drawn.items()}
  if html:
    contents[html / 'index.html'] = webpage.render(
        found, drawn, sites.address(site.runs, html), command).encode()
  stale = set(folder.glob('*.svg')) - set(contents)
  files.write_all({**contents, site.page: text.encode()})
  for path in stale:
    path.unlink(missing_ok=True)
  return found.left_out


def _load(runs_dir, floors_dir, *optional):
  return content.load(
      pathlib.Path(runs_dir), pathlib.Path(floors_dir),
      *(pathlib.Path(path) if path else None for path in optional))


def _site(*paths):
  return Site(*map(pathlib.Path, paths))
