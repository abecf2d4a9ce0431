"""Renders the leaderboard's pages: one template for Markdown, one for HTML.

The same tables and sentences (`tables`, `summary`, `texts`) fill both. All text
from records is escaped, unless it passes a filter for ready markup. The bytes
depend only on the records and on the command lines from `place.command`.
"""

import base64
import functools
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jinja2
import markupsafe

from lra.board import catalogue, figures, longer, site, summary, tables, texts
from lra.board import markdown as md
from lra.board.inputs import Published
from lra.board.rows import OTHER, Row
from lra.board.site import Content
from lra.board.summary import Line
from lra.board.tables import Compared
from lra.core import paths
from lra.core.formats import NONE, percent, plain

_FOLDER = pathlib.Path(__file__).parent / 'templates'
# Longest text of a cell of the HTML page.
_LONG = 300
# Most left-out records that a page names.
_NAMED = 50
_OURS = {'texts': texts, 'tables': tables, 'breakdown': summary.breakdown,
         'alike': summary.alike, 'longer': longer.table,
         'beside_published': longer.beside_published, 'percent': percent,
         'named': _NAMED}


def markdown(found: Content) -> dict[pathlib.Path, str]:
  """Returns the text of each page: the first one, and the details."""
  place = found.place
  environment = _environment(finalize=_inert)
  environment.filters |= {'ours': md.Markup, 'code': md.code}
  parts = _parts(found)
  environment.globals |= _OURS | parts | {
      'table': _table, 'record_table': md.table, 'program': _program(place)}
  pages = {place.page: ('leaderboard.md', {})}
  if found.begun:
    pages |= {place.details / 'reading.md': ('reading.md', {})}
  if parts['side_by_side']:
    pages |= {place.details / 'mechanisms.md': ('mechanisms.md', {})}
  if found.papers:
    pages |= {place.details / 'published.md': ('published.md', {})}
  for board in found.begun:
    pages[place.details / f'{board.task.name}.md'] = (
        'task.md', {'board': board})
  made = {}
  for path, (template, more) in pages.items():
    link = _link_from(path.resolve().parent)
    made[path] = environment.get_template(template).render(
        **more, url=link, records=functools.partial(_records, found, link))
  return made


def html(found: Content, drawn: Mapping[str, bytes],
         folder: pathlib.Path) -> str:
  """Returns the page for browsers, one file with all its parts.

  Args:
    found: its content.
    drawn: its figures, see `figures.draw`.
    folder: the folder of the page.
  """
  environment = _environment(autoescape=True)
  environment.filters |= {'shown': _shown, 'coded': _coded}
  families = {entry.name: entry.family for entry in catalogue.read()}
  runs = site.address(found.place.runs, folder)
  return environment.get_template('page.html').render(
      **_OURS, **_parts(found), choices=_choices(found),
      address=lambda name: _embedded(drawn[name]), kind=_kind, key=_key,
      records=lambda row: [
          ([(plain(name), f'{runs}/{url}', f'seed {run.seed}, {run.status}')
            for name, url, run in made.records],
           plain(made.command, site.LONGEST)) for made in found.made(row)],
      about=lambda item: _about(item, families),
      style=_asset('page.css'), script=_asset('page.js'))


def _environment(**options):
  return jinja2.Environment(
      loader=jinja2.FileSystemLoader(_FOLDER), undefined=jinja2.StrictUndefined,
      trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
      **options)


def _parts(found):
  """Returns the variables of both templates."""
  groups = [(name, title, what, summary.by_protocol(found.boards, name),
             [board for board in found.begun if board.task.group == name])
            for name, (title, what) in texts.GROUPS.items()]
  return {'page': found, 'groups': groups,
          'side_by_side': summary.side_by_side(found.boards),
          'overview': figures.overview(found.boards),
          'profiles': figures.profiles(found.boards),
          'figures': lambda board: figures.task_figures(board, found.speeds)}


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


def _records(found, url, board):
  """Returns lines of the table of records, one for each command."""
  runs = url(found.place.runs)
  return [(row.name, row.table.title, md.Markup(', '.join(
      md.link(str(run.seed), f'{runs}/{name}')
      for _, name, run in made.records)), _command(made.command))
      for row in board.rows for made in found.made(row)]


def _command(text):
  return (md.escape(text) if text.startswith('No command')
          else md.code(text, site.LONGEST))


def _link_from(folder):
  return lambda path: md.Markup(site.address(path, folder))


def _program(place):
  """Returns the commands and folders that the first page names."""
  runs = place.seen(place.runs)
  return {
      'run': place.program(
          f'--config={paths.config_said("simpletron")}:listops_mini'),
      'page': place.program('--leaderboard'), 'runs': runs,
      'flags': place.flags,
      'committed': not (place.flags or paths.installed())}


def _asset(name):
  """Reads a part of the HTML page from the templates."""
  return markupsafe.Markup((_FOLDER / name).read_text(encoding='utf-8'))


def _shown(text):
  return plain(text, _LONG) or NONE


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


def _embedded(svg):
  """Returns a figure as a data URL; as an image it is inert."""
  return 'data:image/svg+xml;base64,' + base64.b64encode(svg).decode()


def _kind(column):
  return 'number' if column.number else 'text'


def _key(column, item):
  """Returns the sort key of a cell; '' for an empty one, always last."""
  value = column.value(item)
  if value is None:
    return ''
  return repr(float(value)) if column.number else plain(value, _LONG)


def _about(item, families):
  """Returns {filter: value} of an item; {} for items that are always shown."""
  if isinstance(item, Compared):
    return _about(item.row, families)
  if isinstance(item, Row):
    return {'task': item.task, 'model': item.model, 'family': item.family,
            'protocol': item.protocol}
  if isinstance(item, Line) and not item.is_baseline:
    return {'model': item.model, 'family': item.family, **(
        {'protocol': item.protocol} if item.protocol else {})}
  if isinstance(item, Published):
    return {'model': item.model, 'protocol': item.protocol,
            'family': families.get(item.here, OTHER)}
  return {}


def _choices(found):
  """Returns {filter: its choices, as pairs (value, title)}."""
  shown = [row for board in found.boards for row in board.rows]
  protocols = {row.protocol for row in shown}
  protocols |= {paper.protocol for paper in found.papers}
  return {
      'task': [(b.task.name, b.task.title) for b in found.begun],
      'family': [(name, name) for name in sorted({r.family for r in shown})],
      'protocol': [(name, name) for name in sorted(protocols)]}
