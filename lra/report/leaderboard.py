"""Writes `leaderboard.md` and its figures from the committed records.

The page is a pure function of the records: the same bytes whatever the order
of files, the locale or the time zone. Nothing here imports jax.
"""

import os
import pathlib

from lra import files
from lra.report import figures, published, rows
from lra.report import markdown as md

_HERE = pathlib.Path(__file__).resolve().parents[1]
RESULTS = _HERE / 'results'
PAGE = _HERE.parent / 'leaderboard.md'
FIGURES = 'lra/results/figures'

_INTRO = """\
# Long Range Arena leaderboard

Generated from `lra/results/` by `python run_lra.py --leaderboard`; never \
edited by hand.

Accuracies are percentages of the whole test split, each example counted once; \
it is read once, at the end of a run. Mean and best are over seeds. "Above \
floor" is the mean minus the task's highest floor, in points: what is not \
above it has not beaten a method without a neural network. Rows of different \
protocols are not comparable and have tables of their own. "x Transformer" \
is the parameter count over that of the Transformer of the same task and \
protocol; a row above 1.10 breaks the arena's limit and says so. Steps per \
second exclude compilation and evaluation and compare only on one device.
"""

_ADD = """\
## Add a row

```
python run_lra.py --config=configs/simpletron.py:listops_mini
python run_lra.py --leaderboard
```

A run's small `result.json`, committed as \
`lra/results/runs/<task>/<model>-<config hash>-s<seed>.json`, is one seed of \
one row.
"""

_PUBLISHED = """\
## Published results

Percentages as their sources print them, in no order of merit. Pooling, heads, \
vocabularies and budgets differ between protocols, so these are compared \
within one protocol only (within `mixed` not even there) and never ranked \
with the rows above. FAIL: not learnt. Secondary: read in another \
paper's table.
"""


def render(runs_dir: str | os.PathLike = RESULTS / 'runs',
           floors_dir: str | os.PathLike = RESULTS / 'floors',
           published_csv: str | os.PathLike = RESULTS / 'published.csv',
           figures_url: str = FIGURES) -> str:
  """Returns the page.

  Args:
    runs_dir: folder of result records, searched recursively; may be missing.
    floors_dir: folder of floors records, `<task>.json`; may be missing.
    published_csv: the published results.
    figures_url: where the page finds its figures.

  Raises:
    UserError: a record or a published row is not sound; names its file.
  """
  boards = rows.load(pathlib.Path(runs_dir), pathlib.Path(floors_dir))
  return _page(boards, published.read(pathlib.Path(published_csv)), figures_url)


def write(page: str | os.PathLike = PAGE,
          runs_dir: str | os.PathLike = RESULTS / 'runs',
          floors_dir: str | os.PathLike = RESULTS / 'floors',
          published_csv: str | os.PathLike = RESULTS / 'published.csv',
          figures_dir: str | os.PathLike = RESULTS / 'figures') -> None:
  """Writes the page and its figures, and removes figures it no longer has.

  Every input is checked and every file is ready before the first is replaced.

  Raises:
    UserError: as `render`, or a file cannot be written.
  """
  page, folder = pathlib.Path(page), pathlib.Path(figures_dir)
  boards = rows.load(pathlib.Path(runs_dir), pathlib.Path(floors_dir))
  url = pathlib.Path(
      os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix()
  text = _page(boards, published.read(pathlib.Path(published_csv)), url)
  contents = {folder / name: data
              for board in boards if _drawn(board)
              for name, data in figures.draw(board).items()}
  stale = set(folder.glob('*.svg')) - set(contents)
  files.write_all({**contents, page: text.encode()})
  for path in stale:
    path.unlink(missing_ok=True)


def _page(boards, papers, url):
  parts = [_INTRO]
  for title, mini in (('Full tasks', False), ('Mini tasks', True)):
    group = [b for b in boards if b.task.mini == mini]
    parts += [f'## {title}\n', *_group(group, mini, url)]
  parts += [_ADD, *_published(papers)]
  return '\n'.join(parts)


def _group(boards, mini, url):
  parts = []
  if mini:
    parts.append('Small versions of the tasks for a laptop; not Long Range '
                 'Arena scores.\n')
  if not any(b.rows for b in boards):
    parts.append('No run yet: see "Add a row" below.\n')
  else:
    parts.append(_overview(boards))
  for board in boards:
    parts += _task(board, url)
  return parts


def _overview(boards):
  """Mean accuracies, one column per task, floors above the scores."""
  cells = {}
  for board in boards:
    for row in board.rows:
      cells.setdefault((row.protocol, row.model), {}).setdefault(
          board.task.name, []).append(row)
  floors = [md.percent(max((f.accuracy for f in b.floors), default=None))
            for b in boards]
  lines = [['*highest floor*', '', *floors]]
  for (protocol, model), by_task in sorted(cells.items()):
    usual = [_usual(by_task.get(b.task.name, [])) for b in boards]
    lines.append([model, protocol, *(md.percent(r and r.mean) for r in usual)])
  header = ['model', 'protocol', *(b.task.title for b in boards)]
  return (md.table(header, lines) + '\n\nMean test accuracy; of a model '
          'run in several configurations, the one with the most seeds, then '
          'the most steps.\n')


def _usual(candidates):
  """The row an overview shows: chosen without looking at its accuracy."""
  return max(candidates, default=None, key=lambda r: (
      not r.foreign, len(r.finished), r.largest('steps'), r.variant))


def _drawn(board):
  return any(row.finished for row in board.rows)


def _task(board, url):
  task = board.task
  parts = [f'### {task.title}\n', _floors(board)]
  for protocol, members in board.protocols().items():
    parts += [f'Protocol {md.code(protocol)}:\n', _scores(members, task.dual)]
  if not board.rows:
    parts.append('No run yet.\n')
  if _drawn(board):
    parts.append('\n'.join(
        f'![{task.title}: {what}]({url}/{name})'
        for name, what in figures.names(task).items()) + '\n')
    parts.append(_details(board))
  return parts


def _floors(board):
  if not board.floors:
    return 'No floor has been computed for this task.\n'
  lines = [[f.name, md.percent(f.accuracy), f.how] for f in board.floors]
  return md.table(['floor', 'accuracy %', 'how'], lines) + '\n'


_SCORES = ('model', 'variant', 'pooling', 'head', 'mean %', 'best %',
           'above floor', 'seeds', 'params', 'x Transformer', 'mixer params',
           'steps', 'steps/s', 'peak GiB', 'device', 'dtype', 'kernel',
           'commit', 'notes')


def _scores(members, dual):
  lines = [_score(row) for row in members]
  header = list(_SCORES)
  if not dual:
    for line in (header, *lines):
      del line[_SCORES.index('head')]
  return md.table(header, lines) + '\n'


def _score(row):
  above = (None if row.mean is None or row.floor is None
           else row.mean - row.floor)
  return [
      row.model, row.variant, row.setting('encoder', 'pooling'),
      row.setting('encoder', 'head'),
      md.percent(row.mean), md.percent(row.best), md.points(above),
      _seeds(row), md.count(row.params),
      md.NONE if row.ratio is None else f'{row.ratio:.2f}',
      md.count(row.largest('mixer_params')), md.count(row.largest('steps')),
      ' / '.join(map(md.quantity, row.per_device('steps_per_s'))),
      ' / '.join(map(md.gib, row.per_device('peak_memory_bytes'))),
      ' / '.join(row.devices), ' / '.join(row.distinct('dtype')),
      ' / '.join(row.distinct('kernel')), _commits(row), _notes(row)]


def _seeds(row):
  done = len(row.finished)
  return (str(done) if done == len(row.runs)
          else f'{done} of {len(row.runs)}')


def _commits(row):
  return ' / '.join(sorted({
      r['git_commit'][:8] + (' (modified)' if r['git_dirty'] else '')
      for r in row.runs if r['git_commit']}))


def _notes(row):
  notes = [_failure(run) for run in row.runs if run['status'] != 'ok']
  if row.heavy:
    notes.append(f'**{100 * (row.ratio - 1):+.1f}% parameters**')
  if row.foreign:
    notes.append(f'**data {row.data[:8]}, floors are of data '
                 f'{row.foreign[:8]}**')
  return '; '.join(notes)


def _failure(run):
  what = {'diverged': f'diverged at step {run["steps"]:,}',
          'oom': 'ran out of memory',
          'stopped': f'stopped at step {run["steps"]:,}'}[run['status']]
  return f'**seed {run["seed"]} {what}**'


_DETAILS = ('model', 'variant', 'protocol', 'val accuracy %', 'test loss',
            'macro precision %', 'macro recall %', 'macro F1 %',
            'test examples', 'checkpoint', 'best step', 'tokens/s', 'train s',
            'eval s', 'compile s')


def _details(board):
  lines = [_detail(row) for row in board.rows if row.finished]
  return ('<details><summary>Precision, recall, F1 and times (means over '
          f'seeds)</summary>\n\n{md.table(_DETAILS, lines)}\n\n'
          '</details>\n')


def _detail(row):
  def average(split, name):
    return rows.mean([r[split][name] for r in row.finished if r[split]])
  steps = sorted({r['best_step'] for r in row.finished} - {None})
  loss = average('test', 'loss')
  return [
      row.model, row.variant, row.protocol,
      md.percent(average('val', 'accuracy')), f'{loss:.4f}',
      *(md.percent(average('test', m)) for m in ('precision', 'recall', 'f1')),
      md.count(rows.examples(row.finished[0])), row.setting('train', 'select'),
      ' / '.join(map(md.count, steps)),
      *(' / '.join(map(md.quantity, row.per_device(f))) for f in (
          'tokens_per_s', 'train_seconds', 'eval_seconds', 'compile_seconds'))]


_COLUMNS = {'listops': 'ListOps', 'text': 'Text', 'retrieval': 'Retrieval',
            'image': 'Image', 'pathfinder': 'Pathfinder', 'pathx': 'Path-X',
            'average': 'Average'}


def _published(papers):
  parts = [_PUBLISHED]
  header = ['model', *_COLUMNS.values(), 'source', 'arXiv', 'evidence']
  for protocol in sorted({p.protocol for p in papers}):
    lines = [[p.model, *(p.scores[c] for c in _COLUMNS), p.source,
              f'[{p.arxiv}](https://arxiv.org/abs/{p.arxiv})', p.evidence]
             for p in papers if p.protocol == protocol]
    parts += [f'### Published: {md.code(protocol)}\n',
              md.table(header, lines) + '\n']
  return parts
