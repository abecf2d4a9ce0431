"""Renders the leaderboard's pages: one template for Markdown, one for HTML.

The same tables and texts fill both. All text from records is escaped, unless
it passes a filter for ready markup. The bytes depend only on the records and on
the command lines from `place.command`.
"""

import functools
import pathlib
import re
import tomllib
from typing import Any

import jinja2
import markupsafe

from lra.board import (
  charts,
  kinds,
  site,
  suite,
  suite_page,
  summary,
  tables,
)
from lra.board import markdown as md
from lra.board.rows import mean
from lra.board.site import Content
from lra.core import paths
from lra.core.formats import NONE, percent, plain, quantity

TEMPLATES = pathlib.Path(__file__).parent / 'templates'
TEXTS = tomllib.loads((TEMPLATES / 'texts.toml').read_text('utf-8'))
# Most left-out records that a page names.
_NAMED = 50
# Filter by an upper limit -> its column.
_LIMITS = {'state': 'state size', 'cost': 'core-minutes'}


def markdown(found: Content) -> dict[pathlib.Path, str]:
  """Returns the text of each page: the first one, and the details."""
  place = found.place
  environment = _environment(found, finalize=_inert)
  environment.filters |= {'ours': md.Markup, 'code': md.code}
  environment.globals |= {
      'table': _table, 'record_table': md.table, 'program': _program(place)}
  pages = {place.page: 'leaderboard.md'} | {
      place.details / name: name for name, there in (
          ('reading.md', found.begun),
          ('laptop.md', found.arena),
          ('mechanisms.md', summary.side_by_side(found.boards)),
          ('published.md', found.papers)) if there}
  boards = {place.details / f'{board.task.name}.md': board
            for board in found.begun}
  made = {}
  for path in (*pages, *boards):
    link = _link_from(path.resolve().parent)
    made[path] = environment.get_template(pages.get(path, 'task.md')).render(
        board=boards.get(path), url=link,
        records=functools.partial(_records, found, link))
  return made


def html(found: Content, folder: pathlib.Path) -> dict[pathlib.Path, str]:
  """Returns the pages for browsers: the first, and one for each task.

  They show the files of `figures/` in the same folder: an image is inert.
  """
  environment = _environment(found, autoescape=True)
  environment.filters |= {
      'ours': markupsafe.Markup, 'coded': _coded,
      'shown': lambda text: plain(text) or NONE}
  runs = site.address(found.place.runs, folder)
  about = functools.partial(_about, _minutes(found))
  template = environment.get_template('page.html')
  # The first page comes last, in case an own task is named "index".
  return {folder / f'{board.task.name if board else "index"}.html':
          template.render(
              board=board, about=about, limits=_LIMITS,
              choices=_choices([board] if board else found.begun,
                               () if board else found.papers),
              wide=functools.partial(_wide, about),
              kind=lambda column: 'number' if column.number else 'text',
              records=lambda item: [
                  ([(plain(name), f'{runs}/{url}',
                     f'seed {run.seed}, {run.status}')
                    for name, url, run in records],
                   plain(command, site.LONGEST))
                  for records, command in found.made[item.row]])
          for board in (*found.begun, None)}


def _environment(found, **options):
  """Returns the templates with the variables that both kinds of pages have."""
  environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(TEMPLATES),
      undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
      keep_trailing_newline=True, **options)
  environment.filters['percent'] = percent
  environment.globals |= {
      'page': found, 'texts': TEXTS, 'tables': tables, 'kinds': kinds,
      'suite': suite, 'arena': suite_page,
      'named': _NAMED,
      'groups': [(name, group, summary.by_protocol(found.boards, name),
                  [board for board in found.begun if board.task.group == name])
                 for name, group in TEXTS['groups'].items()],
      'side_by_side': summary.side_by_side(found.boards),
      'overview': charts.overview(found.boards),
      'profiles': charts.profiles(found.boards),
      'foretelling': charts.foretelling,
      'figures': lambda board: charts.of_task(board, found.speeds)}
  return environment


def _inert(value: Any) -> str:
  """Escapes a value for Markdown, unless it is Markdown already."""
  return value if isinstance(value, md.Markup) else md.escape(str(value))


def _table(table):
  """Converts a `tables.Table` to Markdown."""
  def cell(column, item):
    text = column.text(item)
    if column.link:
      return md.link(text, column.link(item))
    return md.strong(text) if column.strong(item) else text
  return md.Markup(md.table(
      [column.name for column in table.columns],
      [[cell(column, item) for column in table.columns]
       for item in table.items],
      right={column.name for column in table.columns if column.number}))


def _link_from(folder):
  return lambda path: md.Markup(site.address(path, folder))


def _records(found, url, board):
  """Returns lines of the table of records, one for each command."""
  runs = url(found.place.runs)
  return [(row.name, row.table.title, md.Markup(', '.join(
      md.link(str(run.seed), f'{runs}/{name}') for _, name, run in records)),
      command if command.startswith('No command') else
      md.code(command, site.LONGEST))
      for row in tables.lines(board.rows)
      for records, command in found.made[row.row]]


def _program(place):
  """Returns the commands and folders that the first page names."""
  return {
      'run': place.program(
          f'--config={paths.config_said("simpletron")}:listops_mini'),
      'page': place.program('--leaderboard'),
      'runs': site.relative(place.runs, place.page.resolve().parent),
      'flags': place.flags,
      'committed': not (place.flags or paths.installed())}


def _coded(text):
  """Converts backticks to code and double stars to bold, as HTML."""
  parts = re.split(r'`([^`]*)`|\*\*([^*]*)\*\*', text)
  made = markupsafe.Markup()
  for i in range(0, len(parts), 3):
    made += parts[i]
    for tag, part in zip(('code', 'b'), parts[i + 1:i + 3], strict=False):
      if part is not None:
        made += markupsafe.Markup('<{0}>{1}</{0}>').format(tag, part)
  return made


def _about(minutes, item):
  """Returns {filter: value} of an item; {} for items that are always shown.

  An item of several tasks has its largest state size and its mean cost.
  `minutes` has the costs of rows, by (model, protocol, task).
  """
  if not getattr(item, 'family', ''):
    return {}
  states, cost = (), None
  if row := getattr(item, 'row', None):
    states, cost = [item.state_size], suite.core_minutes(row)
  elif isinstance(item, suite.Line):
    states = [cell.state_size for cell in item.cells.values()]
    cost = item.core_minutes
  elif isinstance(item, summary.Line):
    states, known = item.states, [
        cost for (model, protocol, task), costs in minutes.items()
        if model == item.model and task in item.cells
        and item.protocol in ('', protocol) for cost in costs]
    cost = None if None in known else mean(known)
  about = {name: getattr(item, name, '')
           for name in ('model', 'family', 'protocol')}
  about |= {
      'state': max((x for x in states if x is not None), default=''),
      'cost': '' if cost is None else quantity(cost).replace(',', '')}
  return {name: str(value) for name, value in about.items() if value != ''}


def _minutes(found):
  """Returns the core-minutes of rows, by (model, protocol, task)."""
  known = {}
  for board in found.begun:
    for row in board.finished.row:
      if not row.table.departures:
        known.setdefault((row.model, row.protocol, row.task), []).append(
            suite.core_minutes(row))
  return known


def _wide(about, table):
  """Returns a table with its models first, and all that filters ask for."""
  of = {id(item): about(item) for item in table.items}
  names = [column.name for column in table.columns]
  first = next(i for i, name in enumerate(names)
               if name in ('model', 'mechanism'))
  last = max(i for i, column in enumerate(table.columns) if column.number)
  more = [tables.Column(name, lambda item, key=key: of[id(item)].get(key, ''),
                        key != 'family')
          for key, name in {'family': 'family', **_LIMITS}.items()
          if name not in names and any(key in one for one in of.values())]
  return table._replace(columns=[
      table.columns[first], *table.columns[:first],
      *table.columns[first + 1:last + 1], *more, *table.columns[last + 1:]])


def _choices(boards, papers):
  """Returns {filter: its choices}, if there are several."""
  known = {name: {value for board in boards for value in board.rows[name]}
           for name in ('family', 'protocol')}
  known['protocol'] |= {paper.protocol for paper in papers}
  return {name: sorted(values) for name, values in known.items()
          if len(values) > 1}
