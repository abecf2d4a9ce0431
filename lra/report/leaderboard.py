"""Writes `leaderboard.md` and its figures from the committed records.

The page is a pure function of the records: its bytes do not depend on the
order of the files, the locale or the time zone. Nothing here imports jax.
"""

import os
import pathlib
import urllib.parse
from collections.abc import Callable

from lra import files
from lra.report import content, figures, records, webpage
from lra.report import markdown as md
from lra.report.result import Result

_HERE = pathlib.Path(__file__).resolve().parents[1]
RESULTS = _HERE / 'results'
PAGE = _HERE.parent / 'leaderboard.md'
FIGURES = 'lra/results/figures'

_MADE_BY = (
    'Generated from `lra/results/` by `python run_lra.py --leaderboard`; never '
    'edited by hand. "Reading the tables", below, says what the columns mean.')

_ADD = """\
## Add a row

```
python run_lra.py --config=configs/simpletron.py:listops_mini
python run_lra.py --leaderboard
```

A run that changes its protocol's settings is added by `--record`. A run's \
small `result.json`, committed as \
`lra/results/runs/<task>/<model>-<config hash>-s<seed>.json`, is one seed of \
one row.
"""

# Of records that are left out the page names so many.
_NAMED = 50


def render(runs_dir: str | os.PathLike = RESULTS / 'runs',
           floors_dir: str | os.PathLike = RESULTS / 'floors',
           published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
           figures_url: str = FIGURES,
           speed_json: str | os.PathLike | None = RESULTS / 'speed.json'
           ) -> str:
  """Returns the page.

  Args:
    runs_dir, floors_dir, published_csv, speed_json: see `content.load`.
    figures_url: where the page finds its figures.

  Raises:
    UserError: a published row is not sound, and names its line; or the speeds
      are not.
  """
  return _page(
      _load(runs_dir, floors_dir, published_csv, speed_json), figures_url)


def write(page: str | os.PathLike = PAGE,
          runs_dir: str | os.PathLike = RESULTS / 'runs',
          floors_dir: str | os.PathLike = RESULTS / 'floors',
          published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
          figures_dir: str | os.PathLike = RESULTS / 'figures',
          speed_json: str | os.PathLike | None = RESULTS / 'speed.json',
          html: pathlib.Path | None = None,
          command: Callable[[Result], str] | None = None
          ) -> list[records.LeftOut]:
  """Writes the page and its figures, and removes figures it no longer has.

  Every input is checked and every file is ready before the first is replaced.
  Of several writers the last one wins: see `lra.report.publish`.

  Args:
    page: the file to write.
    runs_dir, floors_dir, published_csv, speed_json: see `content.load`.
    figures_dir: folder of the figures.
    html: a folder for the page as HTML, `index.html`; None for none.
    command: needed for that, see `webpage.render`.

  Returns:
    The records that are not on the page, which names them too.

  Raises:
    UserError: as `render`, or a file cannot be written.
  """
  page, folder = pathlib.Path(page), pathlib.Path(figures_dir)
  found = _load(runs_dir, floors_dir, published_csv, speed_json)
  url = urllib.parse.quote(pathlib.Path(
      os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix())
  text = _page(found, url)
  drawn = figures.draw(found.boards, found.speeds)
  contents = {folder / name: data for name, data in drawn.items()}
  if html:
    contents[html / 'index.html'] = webpage.render(
        found, drawn, command).encode()
  stale = set(folder.glob('*.svg')) - set(contents)
  files.write_all({**contents, page: text.encode()})
  for path in stale:
    path.unlink(missing_ok=True)
  return found.left_out


def _load(runs_dir, floors_dir, *optional):
  return content.load(
      pathlib.Path(runs_dir), pathlib.Path(floors_dir),
      *(pathlib.Path(path) if path else None for path in optional))


def _page(found, url):
  parts = [f'# {content.TITLE}\n', f'{content.WHAT}\n',
           *_left_out(found.left_out)]
  if found.best.items:
    parts += [_table(found.best), f'{content.BEST}\n']
  parts += [*_figures(figures.overview(found.boards), url), f'{_MADE_BY}\n']
  for group in found.groups:
    parts += [f'## {group.title}\n', *([f'{group.what}\n'] * bool(group.what)),
              *_group(group, found, url)]
  parts += ['## Reading the tables\n',
            *(f'{text}\n' for text in content.EXPLANATIONS), _ADD]
  if found.papers:
    parts.append(f'## Published results\n\n{content.PUBLISHED}\n')
  for name, table in found.published.items():
    parts += [f'### Published: {md.code(name)}\n', _table(table)]
  return '\n'.join(parts)


def _left_out(records):
  """Which records are not on the page, and why."""
  if not records:
    return []
  lines = [f'* {md.code(r.name)}: {md.escape(r.why)}' for r in records[:_NAMED]]
  if len(records) > _NAMED:
    lines.append(f'* and {len(records) - _NAMED} more')
  many = f'{len(records)} records are' if len(records) > 1 else '1 record is'
  return [f'**{many} left out of this page:**\n', *lines, '']


def _group(group, found, url):
  begun = group.begun
  parts = ([_table(group.overview), f'{content.OVERVIEW}\n'] if begun
           else ['No run yet: see "Add a row" below.\n'])
  for board in begun:
    parts += _task(board, found, url)
  waiting = [f'* {b.task.title}: {md.escape(content.highest_floor(b))}.'
             for b in group.waiting]
  if begun and waiting:
    parts.append('### No run yet\n')
  return parts + waiting + [''] * bool(waiting)


def _task(board, found, url):
  floors = content.floors(board)
  parts = [f'### {board.task.title}\n',
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
    parts += _figures(figures.names(board, found.speeds), url)
    parts += _folded('Precision, recall, F1 and times (means over seeds)',
                     content.details(board))
    parts += _folded('What the accuracies are made of', content.made_of(board))
  return parts


def _figures(names, url):
  """Lines that show figures, `names` file name -> what each shows."""
  lines = [f'![{what}]({url}/{name})' for name, what in names.items()]
  return ['\n'.join(lines) + '\n'] if lines else []


def _folded(summary, table):
  """A table that is shown on request."""
  return [f'<details><summary>{summary}</summary>\n\n{_table(table)}\n'
          '</details>\n'] if table else []


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
