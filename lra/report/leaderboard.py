"""Writes `leaderboard.md` and its figures from the committed records.

The page is a pure function of the records: its bytes do not depend on the
order of the files, the locale or the time zone. Nothing here imports jax.
"""

import os
import pathlib

from lra import files, place
from lra.report import content, figures, records, webpage
from lra.report import markdown as md
from lra.report import site as sites
from lra.report.site import Command, Site

_HERE = pathlib.Path(__file__).resolve().parents[1]
RESULTS = _HERE / 'results'
PAGE = _HERE.parent / 'leaderboard.md'

_ADD = """\
## Add a row

```
{run}
{page}
```

A run that changes its protocol's settings is added by `--record`. A run's \
small `result.json`, {kept} as {records}, is one seed of one row.
"""

# Of records that are left out the page names so many.
_NAMED = 50


def render(page: str | os.PathLike = PAGE,
           runs_dir: str | os.PathLike = RESULTS / 'runs',
           floors_dir: str | os.PathLike = RESULTS / 'floors',
           published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
           figures_dir: str | os.PathLike = RESULTS / 'figures',
           speed_json: str | os.PathLike | None = RESULTS / 'speed.json',
           command: Command | None = None) -> str:
  """Returns the page; for its arguments see `write`.

  Raises:
    UserError: a published row is not sound, and names its line; or the speeds
      are not.
  """
  return _page(_load(runs_dir, floors_dir, published_csv, speed_json),
               _site(page, runs_dir, figures_dir), command)


def write(page: str | os.PathLike = PAGE,
          runs_dir: str | os.PathLike = RESULTS / 'runs',
          floors_dir: str | os.PathLike = RESULTS / 'floors',
          published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
          figures_dir: str | os.PathLike = RESULTS / 'figures',
          speed_json: str | os.PathLike | None = RESULTS / 'speed.json',
          html: pathlib.Path | None = None,
          command: Command | None = None) -> list[records.LeftOut]:
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

  Returns:
    The records that are not on the page, which names them too.

  Raises:
    UserError: as `render`, or a file cannot be written.
  """
  site = _site(page, runs_dir, figures_dir)
  folder = site.figures
  found = _load(runs_dir, floors_dir, published_csv, speed_json)
  text = _page(found, site, command)
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


def _page(found, site, command):
  parts = [f'# {content.TITLE}\n', f'{content.WHAT}\n',
           *_left_out(found.left_out)]
  if found.best.items:
    parts += [_table(found.best), *_no_run(found.waiting),
              f'{content.BEST}\n']
  parts += [*_figures(figures.overview(found.boards), site), _made_by(site)]
  for group in found.groups:
    parts += [f'## {group.title}\n', *([f'{group.what}\n'] * bool(group.what)),
              *_group(group, found, site, command)]
  parts += ['## Reading the tables\n',
            *(f'{text}\n' for text in content.EXPLANATIONS), _add(site)]
  if found.papers:
    parts.append(f'## Published results\n\n{content.PUBLISHED}\n')
  for name, table in found.published.items():
    parts += [f'### Published: {md.code(name)}\n', _table(table)]
  return '\n'.join(parts)


def _made_by(site):
  """What the page is made of, and how."""
  told = f', where {_told(site)}' if site.flags else ''
  of = (md.code(f'{pathlib.PurePosixPath(site.runs_path).parent}/')
        if site.usual else 'records')
  return (f'Generated from {of} by {md.code(site.program("--leaderboard"))}'
          f'{told}; never edited by hand. "Reading the tables", below, says '
          'what the columns mean.\n')


def _told(site):
  """What the words of its flags stand for."""
  page = ' and PAGE is this file' if 'PAGE' in site.flags else ''
  return f'DIR is the folder with {md.code(f"{site.runs_path}/")}{page}'


def _add(site):
  """How a row is added to the page."""
  path = f'{site.runs_path}/<task>/<model>-<config hash>-s<seed>.json'
  return _ADD.format(
      run=site.program(
          f'--config={place.config_said("simpletron")}:listops_mini'),
      page=site.program('--leaderboard'), records=md.code(path),
      kept='kept' if site.flags or place.installed() else 'committed')


def _left_out(records):
  """Which records are not on the page, and why."""
  if not records:
    return []
  lines = [f'* {md.code(r.name)}: {md.escape(r.why)}' for r in records[:_NAMED]]
  if len(records) > _NAMED:
    lines.append(f'* and {len(records) - _NAMED} more')
  many = f'{len(records)} records are' if len(records) > 1 else '1 record is'
  return [f'**{many} left out of this page:**\n', *lines, '']


def _group(group, found, site, command):
  parts = ([_table(group.overview), f'{content.OVERVIEW}\n'] if group.begun
           else [])
  parts += _no_run(group.waiting)
  for board in group.begun:
    parts += _task(board, found, site)
    parts += _folded('Records, and the commands that make them again',
                     _records(board, site, command))
  return parts or ['No run yet: see "Add a row" below.\n']


def _no_run(boards):
  """A line that names tasks without a run, nothing where there are none."""
  names = ', '.join(md.escape(content.with_floor(board)) for board in boards)
  return [f'No run yet: {names}.\n'] if boards else []


def _task(board, found, site):
  floors = content.floors(board)
  note = content.NOTES.get(board.task.name)
  parts = [f'### {board.task.title}\n', *([f'{note}\n'] if note else []),
           _table(floors) if floors
           else 'No floor has been computed for this task.\n']
  for scores in found.scores(board):
    changed = (', settings changed from the protocol' if scores.key.changed
               else '')
    warning = (f' {md.escape(content.no_row_is_above(scores.warning))}'
               if scores.warning else '')
    parts += [f'Protocol {md.code(scores.key.protocol)}{changed}:{warning}\n',
              _table(scores.table),
              *([f'{md.escape(content.seeds_differ(scores.spread))}\n']
                if scores.spread else []),
              *(f'{md.escape(content.equal_scores(twins))}\n'
                for twins in scores.twins)]
    if scores.compared:
      parts += ['Against the published results of this protocol:\n',
                _table(scores.compared), f'{content.COMPARED}\n']
  if board.finished:
    parts += _figures(figures.names(board, found.speeds), site)
    parts += _folded('Precision, recall, F1 and times (means over seeds)',
                     _table(content.details(board)))
    made_of = content.made_of(board)
    if made_of:
      alike = content.alike(board)
      parts += _folded('What the accuracies are made of', _table(made_of) + (
          f'\n{md.escape(alike)}\n' if alike else ''))
  return parts


def _figures(names, site):
  """Lines that show figures, `names` file name -> what each shows."""
  lines = [f'![{what}]({site.figure(name)})' for name, what in names.items()]
  return ['\n'.join(lines) + '\n'] if lines else []


def _folded(summary, table):
  """A table that is shown on request."""
  return [f'<details><summary>{summary}</summary>\n\n{table}\n</details>\n']


def _records(board, site, command):
  """A table of the records of a task, those of one command in one line."""
  url = sites.address(site.runs, site.page.resolve().parent)
  lines = [(row.name, row.table.title, md.Markup(', '.join(
      md.link(str(run.seed), link) for _, link, run in made.records)),
            _command(made.command))
           for row in board.rows for made in sites.made(row, url, command)]
  return md.table(('model', 'protocol', 'records by seed', 'command'),
                  lines) + '\n'


def _command(text):
  return (md.escape(text) if text.startswith('No command')
          else md.code(text, sites.LONGEST))


def _table(table):
  lines = [[_cell(column, item) for column in table.columns]
           for item in table.items]
  numbers = {column.name for column in table.columns if column.number}
  names = [column.name for column in table.columns]
  return md.table(names, lines, right=numbers) + '\n'


def _cell(column, item):
  text = column.text(item)
  if column.link:
    return md.link(text, column.link(item))
  return md.strong(text) if column.strong(item) else text
