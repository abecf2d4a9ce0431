"""Draws the leaderboard as one HTML page that needs nothing beside it.

The same tables as `leaderboard.md` (`lra.report.content`), to be sorted,
filtered and searched in a browser. The bytes are a function of the records and
of what `command` says of them. What comes from a record is escaped, all of it:
the templates of `html/` are filled with autoescape.
"""

import base64
import pathlib
import re
from collections.abc import Mapping

import jinja2
from markupsafe import Markup, escape

from lra.report import content, figures, filters, makeup, overview, texts
from lra.report.content import Content
from lra.report.formats import NONE, plain
from lra.report.site import LONGEST, Command, made

_FOLDER = pathlib.Path(__file__).parent / 'html'
# Longest text of a cell.
_LONG = 300


def render(found: Content, drawn: Mapping[str, bytes], runs_url: str,
           command: Command) -> str:
  """Returns the page.

  Args:
    found: what is on it.
    drawn: its figures, see `figures.draw`.
    runs_url: the address of the folder of its records.
    command: the command line that repeats runs.
  """
  environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True,
      undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
      keep_trailing_newline=True)
  environment.filters |= {'shown': _shown, 'coded': _coded}
  return environment.get_template('page.html').render(
      content=content, makeup=makeup, overview=overview, texts=texts,
      page=found, choices=filters.choices(found), figures=figures,
      address=lambda name: _address(drawn[name]), kind=_kind, key=_key,
      records=lambda item: _records(item, runs_url, command),
      about=filters.asker(),
      style=_part('page.css'), script=_part('page.js'))


def _part(name):
  """A part of the page that is ours."""
  return Markup((_FOLDER / name).read_text(encoding='utf-8'))


def _shown(text, most=_LONG):
  """What a cell shows."""
  return plain(text, most) or NONE


def _coded(text):
  """A text of ours whose code is between backticks."""
  parts = re.split('`([^`]*)`', text)
  return Markup().join(
      Markup('<code>{}</code>').format(part) if i % 2 else escape(part)
      for i, part in enumerate(parts))


def _address(svg):
  """A figure as an address that holds all of it: as an image it is inert."""
  return 'data:image/svg+xml;base64,' + base64.b64encode(svg).decode()


def _kind(column):
  return 'number' if column.number else 'text'


def _key(column, item):
  """What a cell is sorted by, '' for nothing, which is always last."""
  value = column.value(item)
  if value is None:
    return ''
  return repr(float(value)) if column.number else plain(value, _LONG)


def _records(item, runs_url, command):
  """(seeds, command) of a row; of each seed (file, address, status)."""
  return [([(plain(name), url, f'seed {run.seed}, {run.status}')
            for name, url, run in group.records],
           plain(group.command, LONGEST))
          for group in made(item, runs_url, command)]
