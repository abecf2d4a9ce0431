"""The leaderboard's page as Markdown."""

import pathlib

from lra import place
from lra.report import content, figures, makeup, overview, texts
from lra.report import markdown as md
from lra.report import site as sites
from lra.report.content import Content
from lra.report.site import Command, Site

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


def render(found: Content, site: Site, command: Command | None) -> str:
  """Returns the page.

  Args:
    found: what is on it.
    site: where it, its figures and records are.
    command: the command line that repeats runs; None for none.
  """
  parts = [f'# {texts.TITLE}\n', f'{texts.WHAT}\n',
           *_left_out(found.left_out)]
  if found.best.items:
    parts += [_table(found.best), *_no_run(found.waiting),
              f'{texts.BEST}\n']
  parts += [*_figures(figures.overview(found.boards), site), _made_by(site)]
  for group in found.groups:
    parts += [f'## {group.title}\n', *([f'{group.what}\n'] * bool(group.what)),
              *_group(group, found, site, command)]
  parts += ['## Reading the tables\n',
            *(f'{text}\n' for text in texts.EXPLANATIONS), _add(site)]
  if found.papers:
    parts.append(f'## Published results\n\n{texts.PUBLISHED}\n')
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
  parts = ([_table(group.overview), f'{texts.OVERVIEW}\n'] if group.begun
           else [])
  parts += _no_run(group.waiting)
  for board in group.begun:
    parts += _task(board, found, site)
    parts += _folded('Records, and the commands that make them again',
                     _records(board, site, command))
  return parts or ['No run yet: see "Add a row" below.\n']


def _no_run(boards):
  """A line that names tasks without a run, nothing where there are none."""
  names = ', '.join(md.escape(overview.with_floor(board)) for board in boards)
  return [f'No run yet: {names}.\n'] if boards else []


def _task(board, found, site):
  floors = content.floors(board)
  note = texts.note(board)
  parts = [f'### {board.task.title}\n', *([f'{note}\n'] if note else []),
           _table(floors) if floors
           else 'No floor has been computed for this task.\n']
  for scores in found.scores(board):
    changed = (', settings changed from the protocol' if scores.key.changed
               else '')
    warning = scores.warning and f' {md.escape(scores.warning)}'
    parts += [f'Protocol {md.code(scores.key.protocol)}{changed}:{warning}\n',
              _table(scores.table),
              *(f'{md.escape(note)}\n' for note in scores.notes)]
    if scores.compared:
      parts += ['Against the published results of this protocol:\n',
                _table(scores.compared), f'{texts.COMPARED}\n']
  if board.finished:
    parts += _figures(figures.names(board, found.speeds), site)
    parts += _folded('Precision, recall, F1 and times (means over seeds)',
                     _table(content.details(board)))
    made_of = makeup.table(board)
    if made_of:
      alike = makeup.alike(board)
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
