"""Writes `leaderboard.md` and its figures from the committed records.

The page is a pure function of the records: its bytes do not depend on the
order of the files, the locale or the time zone. Nothing here imports jax.
"""

import os
import pathlib
import urllib.parse

from lra import files
from lra.report import columns, figures, published, records, rows
from lra.report import markdown as md
from lra.report.formats import NONE, percent

_HERE = pathlib.Path(__file__).resolve().parents[1]
RESULTS = _HERE / 'results'
PAGE = _HERE.parent / 'leaderboard.md'
FIGURES = 'lra/results/figures'

_INTRO = """\
# Long Range Arena leaderboard

Generated from `lra/results/` by `python run_lra.py --leaderboard`; never \
edited by hand.

Accuracies are percentages of the whole test split, each example counted once; \
it is read once, at the end of a run. They are means over seeds with their 95% \
interval (Student's t); of a single seed (\\*) the interval is that of its \
test examples alone (Wilson) and says nothing of other seeds. Rows of a table \
which have a letter of "group" in common cannot be told apart: at 5% for all \
pairs of the table together (Holm), by Welch's test over seeds where both rows \
have three or more, else by McNemar's exact test of the examples of the first \
seed of each, or by Fisher's where a record does not say which examples were \
right.

"Above floor" is the accuracy minus the task's highest floor, in points: what \
is not above it has not beaten a method without a neural network. Rows of \
different protocols are not comparable and have tables of their own. \
Parameters in bold are more than 110% of those of the Transformer of the same \
task and protocol, which is the arena's limit.

A run whose settings are not those of its protocol is in a table of its own, \
which names them; seeds, data folders and what only fits a run to a machine \
are free. "Modified" beside a commit: what ran is not what is in it.
"""

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

# The group of a task -> the title of its part and what is said there.
_GROUPS = {
    'full': ('Full tasks', []),
    'mini': ('Mini tasks', [
        'Small versions of the tasks for a laptop; not Long Range Arena '
        'scores.\n']),
    'probe': ('Probes', [
        'Not of Long Range Arena: generated sequences that ask for one ability '
        'each; `data_prep/probes.py` says how. Accuracies are of single tokens '
        'that are asked for a class, and '
        '"test examples" counts these.\n']),
}

_PUBLISHED = """\
## Published results

Percentages as their sources print them, in no order of merit. Pooling, heads, \
vocabularies and budgets differ between protocols, so these are compared \
within one protocol only (within `mixed` not even there) and never ranked \
with the rows above. FAIL: not learnt. Secondary: read in another \
paper's table.
"""


# Of records that are left out the page names so many.
_NAMED = 50


def render(runs_dir: str | os.PathLike = RESULTS / 'runs',
           floors_dir: str | os.PathLike = RESULTS / 'floors',
           published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
           figures_url: str = FIGURES) -> str:
  """Returns the page.

  Args:
    runs_dir: folder of result records, searched recursively; may be missing.
    floors_dir: folder of floors records, `<task>.json`; may be missing.
    published_csv: the published results, None for none.
    figures_url: where the page finds its figures.

  Raises:
    UserError: a published row is not sound; names its line.
  """
  boards, left_out = rows.load(
      pathlib.Path(runs_dir), pathlib.Path(floors_dir))
  return _page(boards, left_out, _papers(published_csv), figures_url)


def write(page: str | os.PathLike = PAGE,
          runs_dir: str | os.PathLike = RESULTS / 'runs',
          floors_dir: str | os.PathLike = RESULTS / 'floors',
          published_csv: str | os.PathLike | None = RESULTS / 'published.csv',
          figures_dir: str | os.PathLike = RESULTS / 'figures'
          ) -> list[records.LeftOut]:
  """Writes the page and its figures, and removes figures it no longer has.

  Every input is checked and every file is ready before the first is replaced.
  Of several writers the last one wins: see `lra.report.publish`.

  Returns:
    The records that are not on the page, which names them too.

  Raises:
    UserError: as `render`, or a file cannot be written.
  """
  page, folder = pathlib.Path(page), pathlib.Path(figures_dir)
  boards, left_out = rows.load(
      pathlib.Path(runs_dir), pathlib.Path(floors_dir))
  url = urllib.parse.quote(pathlib.Path(
      os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix())
  text = _page(boards, left_out, _papers(published_csv), url)
  contents = {folder / name: data
              for board in boards if board.finished
              for name, data in figures.draw(board).items()}
  stale = set(folder.glob('*.svg')) - set(contents)
  files.write_all({**contents, page: text.encode()})
  for path in stale:
    path.unlink(missing_ok=True)
  return left_out


def _papers(path):
  return published.read(pathlib.Path(path)) if path else []


def _page(boards, left_out, papers, url):
  parts = [_INTRO, *_left_out(left_out)]
  for name, (title, what) in _GROUPS.items():
    group = [b for b in boards if b.task.group == name]
    parts += [f'## {title}\n', *what, *_group(group, papers, url)]
  parts.append(_ADD)
  if papers:
    parts += _published(papers)
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


def _group(boards, papers, url):
  begun = [b for b in boards if b.rows]
  parts = [_overview(begun) if begun
           else 'No run yet: see "Add a row" below.\n']
  for board in begun:
    parts += _task(board, papers, url)
  waiting = [f'* {b.task.title}: {_floors_in_words(b)}.'
             for b in boards if not b.rows]
  if begun and waiting:
    parts.append('### No run yet\n')
  return parts + waiting + [''] * bool(waiting)


def _floors_in_words(board):
  """The highest floor of a task that has no table yet."""
  if not board.floors:
    return 'no floor has been computed'
  floor = board.floors[-1]
  return f'highest floor {percent(floor.accuracy)} % ({md.escape(floor.name)})'


def _overview(boards):
  """Mean accuracies, one column per task, floors above the scores."""
  titles = [b.task.title for b in boards]
  lines = [[md.Markup('*highest floor*'), '',
            *(percent(b.highest) for b in boards)]]
  for protocol, model in sorted(
      {(r.protocol, r.model) for b in boards for r in b.rows
       if not r.changes}):
    usual = [b.usual(protocol, model) for b in boards]
    lines.append([model, protocol, *(
        columns.accuracy(r) if r else NONE for r in usual)])
  return (md.table(['model', 'protocol', *titles], lines, right=titles) +
          '\n\nMean test accuracy; of a model run in several configurations, '
          'the one with the most seeds, then the most steps. Only runs with '
          'the settings of their protocol.\n')


def _task(board, papers, url):
  task = board.task
  parts = [f'### {task.title}\n',
           _table(columns.FLOORS, board.floors) if board.floors
           else 'No floor has been computed for this task.\n']
  for table, members in board.tables().items():
    changed = ', settings changed from the protocol' if table.changed else ''
    under = _all_under_a_floor(members, board.floors)
    parts += [f'Protocol {md.code(table.protocol)}{changed}:{under}\n',
              _table(columns.SCORES, members)]
    if not table.changed:
      parts += _against_papers(published.compare(
          members, papers, task.name, table.protocol))
  details = [c for c in columns.DETAILS
             if task.dual or c.name not in columns.PAIRS]
  if board.finished:
    parts.append('\n'.join(
        f'![{task.title}: {what}]({url}/{name})'
        for name, what in figures.names(task).items()) + '\n')
    parts.append(
        '<details><summary>Precision, recall, F1 and times (means over '
        f'seeds)</summary>\n\n{_table(details, board.rows)}\n'
        '</details>\n')
    made_of = columns.made_of(board.finished)
    if made_of:
      parts.append(
          '<details><summary>What the accuracies are made of</summary>\n\n'
          f'{_table(made_of, board.finished)}\n</details>\n')
  return parts


def _all_under_a_floor(rows, floors):
  """A sentence for a table of which no row is above every floor, or ''."""
  best = max((row.mean for row in rows if row.finished), default=None)
  above = [f for f in floors if best is not None and f.accuracy >= best]
  if not above:
    return ''
  return (f' no row is above the floor {md.escape(above[-1].name)} '
          f'({percent(above[-1].accuracy)} %), so no model has learnt here '
          'what a method without a neural network finds.')


def _against_papers(compared):
  """The table of rows that have a published counterpart, if any has."""
  if not compared:
    return []
  return ['Against the published results of this protocol:\n',
          _table(columns.COMPARED, compared)]


def _table(shown, items):
  shown = [c for c in shown if c.name not in columns.OPTIONAL or any(
      c.text(item) not in ('', NONE) for item in items)]
  lines = [[md.strong(c.text(item)) if c.strong(item) else c.text(item)
            for c in shown] for item in items]
  numbers = {c.name for c in shown if c.number}
  return md.table([c.name for c in shown], lines, right=numbers) + '\n'


def _published(papers):
  parts = [_PUBLISHED]
  titles = list(published.SCORES.values())
  for protocol in sorted({p.protocol for p in papers}):
    lines = [[p.model, *(p.scores[name] for name in published.SCORES), p.source,
              md.link(p.arxiv, f'https://arxiv.org/abs/{p.arxiv}'), p.evidence]
             for p in papers if p.protocol == protocol]
    header = ['model', *titles, 'source', 'arXiv', 'evidence']
    parts += [f'### Published: {md.code(protocol)}\n',
              md.table(header, lines, right=titles) + '\n']
  return parts
