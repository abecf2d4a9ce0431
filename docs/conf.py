"""Sphinx builds the documentation: sphinx-build -W -b html docs build/docs.

The links in `pages/` make pages of Markdown files outside docs/.
"""

import os
import pathlib
import re
import sys

_DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_DOCS.parent))

import lra  # noqa: E402

project = 'lra'
copyright = 'the lra authors'
version = release = lra.__version__
extensions = ['myst_parser']
html_theme = 'furo'
html_title = f'lra {version}'
html_static_path = ['static']
html_css_files = ['tables.css']
html_js_files = ['access.js']
# No page has a link to its source.
html_copy_source = False
html_theme_options = {'top_of_page_buttons': []}
# Examples are commands and their output, unless they name their language.
highlight_language = 'none'
myst_heading_anchors = 4
nitpicky = True

# Real path -> page of the files that `pages/` links to.
_PAGES = {path.resolve(): f'pages/{path.stem}'
          for path in (_DOCS / 'pages').glob('*.md')}
# The pages of tasks and mechanisms are below the first page of results.
_RESULTS = """

```{toctree}
:hidden:
:glob:

/leaderboard/**
```
"""


def _begin(app, env, docnames):
  """Lets links to the real paths lead to the pages."""
  app.project._path_to_docname.update(_PAGES)


def _read(app, docname, source):
  """Makes links in `pages/` start there, not in the folder of the real file."""
  page = _DOCS / f'{docname}.md'
  if page.is_symlink():
    folder = os.path.relpath(page.resolve().parent, page.parent)
    source[0] = re.sub(
        r'(?<=\]\()(?=[^()#:\s]+[#)])', lambda _: f'{folder}/', source[0])
  if docname == 'pages/leaderboard':
    source[0] += _RESULTS


def setup(app):
  app.connect('env-before-read-docs', _begin)
  app.connect('source-read', _read)
