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
  catalogue,
  charts,
  kinds,
  mechanisms,
  site,
  suite,
  suite_charts,
  suite_page,
  summary,
  tables,
)
from lra.board import markdown as md
from lra.board.rows import mean
from lra.board.site import Content
from lra.core import paths
from lra.core.formats import NONE, enumerated, percent, plain

TEMPLATES = pathlib.Path(__file__).parent / 'templates'
TEXTS = tomllib.loads((TEMPLATES / 'texts.toml').read_text('utf-8'))
# Most left-out records that a page names.
_NAMED = 50
# The part of the README that is written here.
_BEGIN = '<!-- laptop arena, written by run_lra.py board -->\n'
_END = '<!-- end of the laptop arena -->\n'
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
          ('laptop.md', found.arena), ('small.md', found.arena),
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
        table=_linked_table(found, link))
  return made | _of_mechanisms(found, environment) | _readme(found)


def _of_mechanisms(found, environment):
  folder, template = found.place.pages, environment.get_template('mechanism.md')
  entries = {entry.name: entry for entry in catalogue.read()}
  averages = {line.model: line for line in found.arena if line.rank}
  return {folder / f'{name}.md': template.render(
      name=name, lines=lines, entry=entries.get(name), own=averages.get(name),
      url=_link_from(folder.resolve()), commands=[
          (line.title, line.table.title, _command(command)) for line in lines
          for _, command in found.made[line.row]])
          for name, lines in found.mechanisms.items()}


def _readme(found):
  """Returns the README beside the page, if it has a place for the arena."""
  path = found.place.page.with_name('README.md')
  text = path.read_text('utf-8') if found.arena and path.is_file() else ''
  before, begun, rest = text.partition(_BEGIN)
  _, ended, after = rest.partition(_END)
  if not ended:
    return {}
  link = _link_from(path.resolve().parent)
  shown = _linked_table(found, link)(suite_page.results(
      suite_page.known(found.arena), found.boards))
  answers = [f'* **{answer.ability}**: {suite_page.said(answer)}\n'
             for answer in suite_page.answers(found.boards)]
  return {path: f'{before}{begun}\n{"".join(answers)}\n{shown}\n\n'
                f'{suite_page.averaged()} {TEXTS["laptop"]["marks"]}\n{ended}'
                f'{after}'}


def html(found: Content, folder: pathlib.Path) -> dict[pathlib.Path, str]:
  """Returns the pages for browsers: the first, and one for each task.

  They show the files of `figures/` in the same folder: an image is inert.
  """
  environment, about = _environment(found, autoescape=True), _facts(found)
  environment.filters |= {
      'ours': markupsafe.Markup, 'coded': _coded,
      'shown': lambda text: plain(text) or NONE}
  runs = site.address(found.place.runs, folder)
  environment.globals |= {
      'about': about, 'wide': functools.partial(_wide, about),
      'limits': _LIMITS,
      'kind': lambda column: 'number' if column.number else 'text',
      'records': lambda item: [
          ([(plain(name), f'{runs}/{url}', f'seed {run.seed}, {run.status}')
            for name, url, run in records], plain(command, site.LONGEST))
          for records, command in found.made[item.row]]}
  template = environment.get_template('page.html')
  # The first page comes last, in case an own task is named "index".
  return {folder / f'{board.task.name if board else "index"}.html':
          template.render(board=board, families=sorted({
              family for one in ([board] if board else found.begun)
              for family in one.rows.family}))
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
      'named': _NAMED, 'enumerated': enumerated,
      'groups': [(name, group, summary.by_protocol(found.boards, name),
                  [board for board in found.begun if board.task.group == name])
                 for name, group in TEXTS['groups'].items()],
      'mechanisms': mechanisms,
      'pictures': suite_charts,
      'figures': charts.of_task}
  return environment


def _inert(value: Any) -> str:
  """Escapes a value for Markdown, unless it is Markdown already."""
  return value if isinstance(value, md.Markup) else md.escape(str(value))


def _linked_table(found, url):
  """Returns `_table` with links to pages of mechanisms."""
  return functools.partial(
      _table, linked=found.mechanisms, folder=url(found.place.pages))


def _table(table, linked=(), folder=''):
  """Converts a `tables.Table` to Markdown; `linked` are models with a page."""
  def cell(column, item):
    text, model = column.text(item), getattr(item, 'model', None)
    if column.link:
      return md.link(text, column.link(item))
    if column.name in ('model', 'mechanism') and model in linked:
      return md.link(text, f'{folder}/{model}.md')
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


def _facts(found):
  """Returns a function: an item -> {filter: value}, {} if it is always shown.

  An item of several tasks has its largest state size and its mean cost.
  """
  known = [(row.model + (row.own_changes and f' ({row.own_changes})'), row)
           for board in found.begun for row in board.finished.row]

  def about(item):
    if not getattr(item, 'family', ''):
      return {}
    if hasattr(item, 'row'):
      rows = [item.row]
    elif isinstance(item, suite.Line):
      rows = [cell.row for cell in item.cells.values()]
    else:
      rows = [row for name, row in known if name == item.model
              and row.task in getattr(item, 'cells', ())
              and item.protocol in ('', row.protocol)]
    states = {row.state_size for row in rows} - {None}
    costs = [suite.core_minutes(row) for row in rows] or [None]
    facts = {'model': item.model, 'family': item.family,
             'state': str(max(states, default='')),
             'cost': '' if None in costs else f'{mean(costs):.1f}'}
    return {name: value for name, value in facts.items() if value}
  return about


def _wide(about, table):
  """Returns a table with its models first, and all that filters ask for."""
  of = {id(item): about(item) for item in table.items}
  names = [column.name for column in table.columns]
  more = [tables.Column(name, lambda item, key=key: of[id(item)].get(key, ''),
                        key != 'family')
          for key, name in {'family': 'family', **_LIMITS}.items()
          if name not in names and any(key in one for one in of.values())]
  return table._replace(columns=sorted(
      [*table.columns, *more], key=lambda column: (
          column.name not in ('model', 'mechanism'), not column.number,
          column.name != 'family')))
