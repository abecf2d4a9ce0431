"""Sphinx builds the documentation: sphinx-build -W -b html docs build/docs."""

import pathlib
import re

project = 'lra'
copyright = 'the lra authors'
extensions = ['myst_parser']
html_theme = 'furo'
html_title = 'lra'
# Examples are commands and their output, unless they name their language.
highlight_language = 'none'
myst_heading_anchors = 4
nitpicky = True

_DOCS = pathlib.Path(__file__).resolve().parent


def _outside(app, docname, source):
  """Makes links to Markdown outside docs/ downloads; MyST knows no others."""
  folder = (_DOCS / docname).parent

  def link(match):
    text, path = match[1], (folder / match[2]).resolve()
    return (match[0] if path.is_relative_to(_DOCS) else
            f'{{download}}`{text} <{match[2]}>`')

  source[0] = re.sub(
      r'\[([^\]`]+)\]\((\.\./[^)#]+\.md)(?:#[^)]*)?\)', link, source[0])


def setup(app):
  app.connect('source-read', _outside)
