"""Renders the leaderboard's pages: one template for Markdown, one for HTML.

The same tables and texts fill both. All text from records is escaped, unless
it passes a filter for ready markup. The bytes depend only on the records and on
the command lines from `place.command`.
"""

import base64
import functools
import pathlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import jinja2
import markupsafe

from lra.board import (
  catalogue,
  charts,
  kinds,
  mechanisms,
  site,
  suite,
  suite_page,
  summary,
  tables,
)
from lra.board import markdown as md
from lra.board.site import Content
from lra.core import paths
from lra.core.formats import NONE, percent, plain

TEMPLATES = pathlib.Path(__file__).parent / 'templates'
TEXTS = tomllib.loads((TEMPLATES / 'texts.toml').read_text('utf-8'))
# Most left-out records that a page names.
_NAMED = 50


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
          ('mechanisms.md', found.mechanisms),
          ('published.md', found.papers)) if there}
  boards = {place.details / f'{board.task.name}.md': board
            for board in found.begun}
  made = {}
  for path in (*pages, *boards):
    link = _link_from(path.resolve().parent)
    made[path] = environment.get_template(pages.get(path, 'task.md')).render(
        board=boards.get(path), url=link,
        records=functools.partial(_records, found, link),
        table=functools.partial(
            _table, linked=() if path == place.page else found.mechanisms))
  return made | _of_mechanisms(found, environment)


def _of_mechanisms(found, environment):
  folder, template = found.place.pages, environment.get_template('mechanism.md')
  entries = {entry.name: entry for entry in catalogue.read()}
  arena = {line.model: line for line in found.arena if line.rank}
  return {folder / f'{name}.md': template.render(
      name=name, lines=lines, entry=entries.get(name), arena=arena.get(name),
      url=_link_from(folder.resolve()), commands=[
          (line.title, line.table.title, _command(command)) for line in lines
          for _, command in found.made[line.row]])
          for name, lines in found.mechanisms.items()}


def html(found: Content, drawn: Mapping[str, bytes],
         folder: pathlib.Path) -> str:
  """Returns the page in `folder` for browsers, with its figures {name: SVG}."""
  environment = _environment(found, autoescape=True)
  environment.filters |= {
      'ours': markupsafe.Markup, 'coded': _coded,
      'shown': lambda text: plain(text) or NONE}
  runs = site.address(found.place.runs, folder)
  return environment.get_template('page.html').render(
      choices=_choices(found), about=_about,
      # As an image, a figure is inert.
      address=lambda name: 'data:image/svg+xml;base64,' + base64.b64encode(
          drawn[name]).decode(),
      kind=lambda column: 'number' if column.number else 'text',
      records=lambda item: [
          ([(plain(name), f'{runs}/{url}', f'seed {run.seed}, {run.status}')
            for name, url, run in records], plain(command, site.LONGEST))
          for records, command in found.made[item.row]])


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
      'mechanisms': mechanisms, 'side_by_side': None,
      'overview': charts.overview(found.boards),
      'foretelling': charts.foretelling,
      'figures': lambda board: charts.of_task(board, found.speeds)}
  return environment


def _inert(value: Any) -> str:
  """Escapes a value for Markdown, unless it is Markdown already."""
  return value if isinstance(value, md.Markup) else md.escape(str(value))


def _table(table, linked=()):
  """Converts a `tables.Table` to Markdown; `linked` are models with a page."""
  def cell(column, item):
    text, model = column.text(item), getattr(item, 'model', None)
    if column.link:
      return md.link(text, column.link(item))
    if column.name in ('model', 'mechanism') and model in linked:
      return md.link(text, f'mechanisms/{model}.md')
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
      _command(command))
      for row in tables.lines(board.rows)
      for records, command in found.made[row.row]]


def _command(text):
  return text if text.startswith('No command') else md.code(text, site.LONGEST)


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


def _about(item):
  """Returns {filter: value} of an item; {} for items that are always shown."""
  about = {name: getattr(item, name, '')
           for name in ('task', 'model', 'family', 'protocol')}
  return {name: value for name, value in about.items()
          if value and about['family']}


def _choices(found):
  """Returns {filter: its choices, as pairs (value, title)}."""
  known = {name: {value for board in found.begun
                  for value in board.rows[name]}
           for name in ('family', 'protocol')}
  known['protocol'] |= {paper.protocol for paper in found.papers}
  return {'task': [(b.task.name, b.task.title) for b in found.begun]} | {
      name: [(value, value) for value in sorted(values)]
      for name, values in known.items()}
