"""Writes docs/studies.md: experiments of papers, and whether results agree.

Everything on the page comes from the files of configs/studies/, from records
of runs, and from measurements in lra/results/studies/NAME.json. Such a file has
`rows`, a list of objects with one value for each column, and says how it was
made: `command`, `commit` and `environment`.
"""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence

from lra.board import markdown
from lra.core import files, paths
from lra.core.errors import UserError, choose
from lra.core.formats import NONE, percent, points, significant
from lra.many import study as study_lib
from lra.many import study_compared as compared
from lra.many import study_figure as figure
from lra.many.study import Study

_INTRO = '''# Studies

The papers behind this project do more than a table of scores. Each study below
repeats one of their experiments. This page is written by
`{program}` from records; no number is typed by hand.

- A cell shows the mean test accuracy in percent with its 95% interval, and the
  number of seeds. The interval is over seeds, or over test examples for one.
  A dash stands for runs that have no record yet.

| answer to a claim | meaning |
| :-- | :-- |
| same | the difference is significant, with the sign that the paper reports |
| opposite | it is significant, but the paper reports the other sign or none |
| not shown | the paper reports a difference, and ours is not significant |
| no difference found | not significant; the paper reports none or is unknown |
| higher, lower | it is significant, and the paper's result is not known |

- *(untested)*: one measured number was compared with another, without a test.
- Tests are Welch's t-test over seeds. If an arm has one seed, it is McNemar's
  test of the examples, with the largest p-value of all pairs of seeds. A
  baseline is compared by Fisher's test. Holm's correction is made within a
  study. The intervals are neither corrected nor paired by examples, so one
  without 0 may stand beside a difference that is not significant.
- A ratio of times is the median of the ratios within each round. So it may
  differ from the ratio of the medians beside it.
'''


@dataclasses.dataclass(frozen=True)
class Measured:
  """The content of a measurement file.

  Attributes:
    rows: objects with one value for each column.
    origin: how it was made, a sentence; '' if there is no file.
  """
  rows: Sequence[Mapping]
  origin: str


def write(page: pathlib.Path, results: pathlib.Path) -> None:
  """Writes the page and its figures.

  Args:
    page: the Markdown file.
    results: the folder of the records; figures go to `studies/` in it.

  Raises:
    UserError: a study or a measurement is not valid.
  """
  contents = made(page, results)
  folder = results / 'studies'
  files.write_all(contents)
  for stale in {*folder.glob('*.svg')} - set(contents):
    stale.unlink()


def made(page: pathlib.Path, results: pathlib.Path
         ) -> dict[pathlib.Path, bytes]:
  """Returns {path: content} of the page and its figures; see `write`."""
  folder = results / 'studies'
  contents, sections, overview = {}, [], []
  for name in study_lib.names():
    file = paths.PACKAGE / study_lib.FOLDER / f'{name}{study_lib.SUFFIX}'
    study = study_lib.read(file)
    found = compared.cells(study, file, results / 'runs') if study.arms else {}
    measured = _measured(folder / f'{name}.json')
    _check_claims(file, study, found, measured.rows)
    drawn = {folder / f'{file_name}.svg': data for file_name, data in
             _figures(study, found, measured).items()}
    contents |= drawn
    answers = [*compared.answers(study, found),
               *compared.measured_answers(study, measured.rows)]
    overview.append((markdown.link(study.title, f'#{_anchor(study.title)}'),
                     study.question, _summary(answers)))
    sections.append(_section(study, found, measured, answers, [
        os.path.relpath(path, page.parent) for path in drawn]))
  program = ' '.join((*paths.program(), 'board', '--studies'))
  text = '\n'.join([
      _INTRO.format(program=program),
      markdown.table(('study', 'question', 'answers'), overview), '',
      '\n\n'.join(sections), ''])
  return {page: text.encode()} | contents


def _check_claims(file, study, found, rows):
  """Raises UserError if a claim names no measured row or column.

  `study.read` checks the names of arms.
  """
  arms = {arm for arm, _ in found}
  measured = {str(next(iter(row.values()))) for row in rows}
  columns = {column for _, column in found}.union(*rows)
  for claim in study.claims:
    if claim.arm not in arms and not rows:
      continue  # not measured yet
    for name in () if claim.arm in arms else (claim.arm, claim.than):
      if name not in measured:
        raise UserError(
            f'{file}: the claim {claim.text!r} is about {name!r}: '
            f'{choose(name, sorted(measured))}')
    for name in claim.at:
      if name not in columns:
        raise UserError(f'{file}: the claim {claim.text!r} is about the column '
                        f'{name!r}: {choose(name, sorted(columns))}')


def _anchor(title):
  return ''.join(c for c in title.lower().replace(' ', '-')
                 if c.isalnum() or c == '-')


def _summary(answers):
  counts = collections.Counter(a.verdict for a in answers)
  return ', '.join(f'{n} {verdict}' for verdict, n in counts.items()) or NONE


def _measured(path):
  """Reads a measurement file; without a file there are no rows."""
  if not path.exists():
    return Measured((), '')
  values = files.read_json(path)
  rows = values.get('rows') if isinstance(values, dict) else None
  if not isinstance(rows, list) or not all(
      isinstance(row, dict) and row for row in rows):
    raise UserError(f"{path} has no list of objects named 'rows': make it "
                    'again.')
  where = values.get('environment') or {}
  if isinstance(where, dict):
    where = ', '.join(f'{k} {where[k]}' for k in sorted(where))
  return Measured(rows, (
      f'Measured by `{values.get("command")}` at commit '
      f'{str(values.get("commit"))[:12]} ({where}).'))


def _figures(study, found, measured):
  """Returns {name: SVG} of a study."""
  drawn = {}
  if any(row and row.finished for row in found.values()):
    drawn[study.name] = figure.arms(study, found)
  if study.draws:
    more = (figure.mixer_std(found) if study.draws == 'mixer_std' else
            figure.runtime(found, measured.rows))
    if more:
      drawn[f'{study.name}_{study.draws}'] = more
  return drawn


def _section(study: Study, found, measured, answers, drawn):
  parts = [f'## {markdown.escape(study.title)}',
           f'**Question.** {markdown.escape(study.question)}',
           f'**Source.** {markdown.escape(study.source)}',
           f'**The paper.** {study.reported}']
  if study.differs:
    parts.append(f'**Here.** {study.differs}')
  if found:
    parts += ['```\n' + ' '.join((
        *paths.program(), f'--sweep={study_lib.FOLDER}/{study.name}.toml',
        '--record')) + '\n```', _table(study, found)]
  if measured.rows:
    parts += [_measured_table(measured.rows), measured.origin]
  if answers:
    parts.append(_answers(answers))
  parts += [f'![{study.title}]({path})' for path in drawn]
  return '\n\n'.join(parts)


def _table(study, found):
  columns = list(dict.fromkeys(column for _, column in found))
  names = list(dict.fromkeys(arm for arm, _ in found))
  head = [f'{study.axis.split(".")[-1]} {c}' if study.axis else c
          for c in columns]
  return markdown.table(
      ('arm', *head), [(name, *(_cell(found.get((name, column)))
                                for column in columns)) for name in names],
      right=head)


def _cell(row):
  if row is None:
    return NONE
  lost = len(row.runs) - len(row.finished)
  gone = f'{lost} of {len(row.runs)} diverged'
  if not row.finished:
    return gone
  known = row.interval
  return (f'{percent(row.mean, row.digits)} '
          f'({percent(known.low, row.digits)} to '
          f'{percent(known.high, row.digits)}), n={len(row.finished)}'
          + (f', {gone}' if lost else ''))


def _measured_table(rows):
  columns = list(dict.fromkeys(name for row in rows for name in row))
  numbers = {c for c in columns if all(
      isinstance(row.get(c), int | float | None) for row in rows)}
  return markdown.table(columns, [
      [_number(row.get(column)) for column in columns] for row in rows],
                        right=numbers)


def _number(value):
  if value is None or isinstance(value, str):
    return value or NONE
  return significant(value)


def _answers(answers):
  return markdown.table(
      ('claim', 'at', 'difference', '95% interval', 'seeds', 'result'),
      [(a.claim.text, a.column, *_numbers(a), a.verdict) for a in answers],
      right=('difference', '95% interval', 'seeds'))


def _numbers(a):
  if a.low != a.low:  # measured, without an interval
    return significant(a.difference), NONE, NONE
  return (f'{points(a.difference)} points',
          f'{points(a.low)} to {points(a.high)}',
          str(a.seeds[0]) if a.claim.than.startswith(study_lib.BASELINE)
          else f'{a.seeds[0]} and {a.seeds[1]}')
