"""Writes docs/studies.md: experiments of papers, and whether results agree.

Everything on the page comes from the files of configs/runs/ with a `[study]`,
from records of runs, and from measurements in lra/results/studies/NAME.json.
Such a file has `rows`, a list of objects with one value for each column, and
says how it was made: `command`, `commit` and `environment`.
"""

import dataclasses
import itertools
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jinja2
import numpy as np
import scipy.stats

from lra.board import markdown, statistics
from lra.board.rows import Row
from lra.core import files, paths
from lra.core.errors import UserError, choose
from lra.core.formats import NONE, percent, points, significant
from lra.many import runs as runs_lib
from lra.many import status, study_figure
from lra.many.study_figure import Cells
from lra.schema import runs_file
from lra.schema.runs_file import Claim, Study

# How a claim compares with the runs.
SAME, OPPOSITE, UNSURE = 'holds', 'does not hold', 'not shown'
EQUAL = 'no difference found'
UNTESTED = ' (untested)'
POSITIVES = ': false positives'
LONGER = ', length {}'
MARGIN = 0.01  # accuracies that surely differ by less count as equal
_SIGN = {'higher': 1, 'lower': -1, 'equal': 0}
_FOLDER = pathlib.Path(__file__).parent / 'templates'


class Answer(NamedTuple):
  """A claim in one column of the table.

  The column is a task, or a value of the study's axis. The difference is the
  accuracy of the claim's arm minus that of the other, a fraction, with its 95%
  interval and the p-value of the test, NaN without one. The verdict is `SAME`,
  `EQUAL`, `UNSURE` or `OPPOSITE`; or `higher` or `lower` if the paper's result
  is not known.
  """
  claim: Claim
  column: str
  difference: float
  low: float
  high: float
  p: float
  seeds: tuple[int, int]
  verdict: str


class FalsePositives(Row):
  """A row whose scores are not accuracies, but shares of false positives.

  These are the shares of the test examples of class 0 that were put into class
  1, on a task of two classes.
  """
  accuracies = property(lambda self: [
      run.test.confusion[0][1] / sum(run.test.confusion[0])
      for run in self.finished])

  @property
  def sample(self) -> statistics.Sample | None:
    return statistics.Sample(tuple(self.accuracies), sum(
        self.finished[0].test.confusion[0])) if self.finished else None


@dataclasses.dataclass(frozen=True, eq=False)
class Longer(Row):
  """A row whose scores are those of the test of a length, `length`."""
  length: str = ''

  accuracies = property(lambda self: list(self.sample.accuracies))
  sample = property(lambda self: self.longer(self.length))


def cells(study: Study, name: str, records: pathlib.Path) -> Cells:
  """Returns the recorded runs of each arm in each column, in the study's order.

  The `name` is that of its file, see `runs.read`; the folder is that of all
  records, such as lra/results/runs.

  If an arm has a search, its row is that of the setting that was chosen.

  Raises:
    UserError: an arm has two configs in one column.
  """
  runs = runs_lib.read(name)
  known = status.recorded(runs, records)
  found = {}
  for run in runs:
    values = json.loads(run.repetition)[0]
    column = str(values[study.axis]) if study.axis else values['task']
    found.setdefault((run.arm, column), []).append(run)
  for (arm, column), seeds in found.items():
    if not seeds[0].searched and len({run.setting for run in seeds}) > 1:
      raise UserError(f'{name}: the arm {arm} has several configs for '
                      f'{column}: give each a name of its own.')
  kept = {key: [known[run.repetition] for run in seeds
                if run.repetition in known
                and bool(known[run.repetition].search) == bool(run.searched)]
          for key, seeds in found.items()}
  made = {key: Row(some) if some else None for key, some in kept.items()}
  return made | {
      (arm, f'{column}{POSITIVES}'): row and FalsePositives(row.runs)
      for (arm, column), row in made.items()
      if column in study.false_positives} | {
          (arm, column + LONGER.format(length)):
              Longer(row.runs, length=length)
              if row and row.longer(length) else None
          for (arm, column), row in made.items()
          for length in study.longer.get(column, ())}


def answers(study: Study, found: Cells) -> list[Answer]:
  """Tests the claims in each column with runs, with Holm's correction.

  Seeds are compared by Welch's t-test. If an arm has one seed only, or no seeds
  differ, it is McNemar's test of the examples.
  """
  open_ = []
  for claim in study.claims:
    for column in dict.fromkeys(column for _, column in found):
      a, b = (found.get((name, column)) for name in (claim.arm, claim.than))
      if not (a and a.accuracies) or (claim.at and column not in claim.at):
        continue
      other = b.sample if b and b.accuracies else _baseline(a, claim.than)
      if other is not None:
        open_.append((claim, column, _tested(a.sample, other),
                      (len(a.accuracies), len(other.accuracies))))
  apart = statistics.differ([p for *_, (p, *_), _ in open_]) if open_ else []
  return [Answer(claim, column, *difference, p, seeds,
                 verdict(claim.expected, *difference, differs))
          for (claim, column, (p, *difference), seeds), differs in zip(
              open_, apart, strict=True)]


def verdict(expected: str, difference: float, low: float, high: float,
            significant: bool) -> str:
  """Returns how a measured difference compares with the expected one.

  `low` and `high` are the ends of its 95% interval; NaN without one.
  """
  if expected == 'equal' and -MARGIN <= low and high <= MARGIN:
    return SAME
  if not significant:
    return EQUAL if expected in ('equal', '') else UNSURE
  if not expected:
    return 'higher' if difference > 0 else 'lower'
  return SAME if np.sign(difference) == _SIGN[expected] else OPPOSITE


def _baseline(row, name):
  """Returns a baseline of the first run as a sample of one, or None."""
  known = row.runs[0].baselines.get(name.removeprefix(runs_file.BASELINE))
  return None if known is None or not name.startswith(
      runs_file.BASELINE) else statistics.Sample((known,), row.sample.examples)


def _tested(a, b):
  """Returns (p-value, difference of the means, ends of its interval)."""
  middle = float(np.mean(a.accuracies) - np.mean(b.accuracies))
  if min(len(a.accuracies), len(b.accuracies)) < 2 or not (
      np.ptp(a.accuracies) or np.ptp(b.accuracies)):
    return (float(statistics.p_values([a, b], None)[0, 1]), middle,
            *statistics.difference(a, b))
  test = scipy.stats.ttest_ind(a.accuracies, b.accuracies, equal_var=False)
  return float(test.pvalue), middle, *map(float, test.confidence_interval(
      statistics.CONFIDENCE))


def measured_answers(study: Study, rows: Sequence[Mapping]) -> list[Answer]:
  """Compares measured rows by the column that a claim names; no test.

  The first value of a row is its name. Rows of several tasks have a `task`.
  """
  named = {(str(next(iter(row.values()))), row.get('task')): row
           for row in rows}
  made = []
  for claim in study.claims:
    for column, task in itertools.product(
        claim.at, dict.fromkeys(task for _, task in named)):
      a, b = (named.get((name, task), {}).get(column)
              for name in (claim.arm, claim.than))
      if a is not None and b is not None:
        unknown = math.nan, math.nan
        made.append(Answer(
            claim, f'{column}, {task}' if task else column, a - b, *unknown,
            math.nan, (1, 1),
            verdict(claim.expected, a - b, *unknown, a != b) + UNTESTED))
  return made


def publish(place) -> None:
  """Writes the page and its figures, and prints the page's path.

  It is in docs/ for the records of a checkout, else beside them.

  Raises:
    UserError: a study or a measurement is not valid.
  """
  ours = not (place.flags or paths.installed())
  page = (paths.ROOT / 'docs' if ours else place.results) / 'studies.md'
  contents = made(page, place.results)
  files.write_all(contents)
  for stale in {*(place.results / 'studies').glob('*.svg')} - set(contents):
    stale.unlink()
  print(f'wrote {page}')


def made(page: pathlib.Path, results: pathlib.Path
         ) -> dict[pathlib.Path, bytes]:
  """Returns {path: content} of the page and its figures.

  Figures go to `studies/` in the folder of the results.
  """
  contents, sections = {}, []
  for name in runs_file.names():
    file = runs_file.read(
        paths.PACKAGE / runs_file.FOLDER / f'{name}{runs_file.SUFFIX}')
    if file.study:
      drawn, section = _section(file, name, results)
      drawn = {results / 'studies' / f'{stem}.svg': data
               for stem, data in drawn.items()}
      contents |= drawn
      sections.append(section | {'figures': [
          os.path.relpath(path, page.parent) for path in drawn]})
  environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(_FOLDER), undefined=jinja2.StrictUndefined,
      trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
  environment.filters['inert'] = markdown.escape
  text = environment.get_template('studies.md').render(
      program=' '.join(paths.program()), studies=sections)
  return {page: text.encode()} | contents


def _section(file, name, results):
  """Returns the figures of a study, {name: SVG}, and its variables."""
  study = file.study
  found = cells(study, name, results / 'runs') if file.runs else {}
  rows, origin = _measured(results / 'studies' / f'{name}.json')
  check_claims(name, study, found, rows)
  drawn = {}
  scored = {key: row for key, row in found.items()
            if not isinstance(row, FalsePositives | Longer)}
  if any(row and row.finished for row in scored.values()):
    drawn[name] = study_figure.arms(study, scored)
  if study.draws:
    more = (study_figure.mixer_std(found) if study.draws == 'mixer_std' else
            study_figure.runtime(found, rows))
    drawn |= {f'{name}_{study.draws}': more} if more else {}
  answered = [*answers(study, found), *measured_answers(study, rows)]
  return drawn, {
      **study.model_dump(), 'name': name, 'cells': found, 'rows': rows,
      'table': _table(study, found), 'origin': origin,
      'measured': _measured_table(study, rows), 'answers': answered,
      'compared': _compared(study, answered),
      'summary': _summary(study, answered),
      'link': markdown.link(study.title, f'#{_anchor(study.title)}')}


def check_claims(name: str, study: Study, found: Cells,
                 rows: Sequence[Mapping]) -> None:
  """Raises UserError if a claim names no measured row or column, or if a number
  of the paper stands beside none.

  `runs_file.read` checks the names of arms.
  """
  arms = {arm for arm, _ in found}
  measured = {', '.join(map(str, [*row.values()][:n]))
              for row in rows for n in (1, 2)}
  columns = {column for _, column in found}.union(*rows)
  said = []
  for claim in study.claims:
    if rows:  # else it may be about what is not measured yet
      of = () if claim.arm in arms else (claim.arm, claim.than)
      said += [(f'the claim {claim.text!r}', one, known) for names, known in (
          (of, measured), (claim.at, columns)) for one in names]
  for column, numbers in study.paper.items():
    if rows or column in columns:
      said += [('study.paper', column, columns), *(
          ('study.paper', one, arms | measured) for one in numbers)]
  for what, one, known in said:
    if one not in known:
      raise UserError(f'{name}: {what} is about {one!r}: '
                      f'{choose(one, sorted(known))}')


def _anchor(title):
  return ''.join(c for c in title.lower().replace(' ', '-')
                 if c.isalnum() or c == '-')


def _measured(path):
  """Returns the rows of a measurement file, and a sentence on its origin.

  Without a file there are no rows.
  """
  if not path.exists():
    return [], ''
  values = files.read_json(path)
  rows = values.get('rows') if isinstance(values, dict) else None
  if not isinstance(rows, list) or not all(
      isinstance(row, dict) and row for row in rows):
    raise UserError(f"{path} has no list of objects named 'rows': make it "
                    'again.')
  where = values.get('environment') or {}
  if isinstance(where, dict):
    where = ', '.join(f'{k} {where[k]}' for k in sorted(where))
  return rows, (f'Measured by `{values.get("command")}` at commit '
                f'{str(values.get("commit"))[:12]} ({where}).')


def _table(study, found):
  names, columns = (list(dict.fromkeys(key[i] for key in found))
                    for i in (0, 1))
  head = [f'{study.axis.split(".")[-1]} {c}' if study.axis else c
          for c in columns]
  return _beside_paper(study, ['arm', *columns], ['arm', *head], [
      [name, *(_cell(found.get((name, column))) for column in columns)]
      for name in names], head)


def _beside_paper(study, columns, head, rows, right):
  """Returns a table; a column with numbers of the paper has them beside it."""
  def both(column, cell, paper):
    return (cell, paper) if column in study.paper else (cell,)

  def number(row, column):
    known = study.paper.get(column, {})
    found = known.get(row[0], known.get(', '.join(row[:2])))
    return NONE if found is None else significant(found)
  return markdown.table(
      [name for column, title in zip(columns, head, strict=True)
       for name in both(column, title, f'{title}: paper')],
      [[text for column, cell in zip(columns, row, strict=True)
        for text in both(column, cell, number(row, column))] for row in rows],
      right={*right, *(f'{title}: paper' for title in head)})


def _cell(row):
  if row is None:
    return NONE
  lost = len(row.runs) - len(row.finished)
  gone = f'{lost} of {len(row.runs)} diverged'
  if not row.finished:
    return gone
  mean, low, high = (percent(x, row.digits) for x in (
      row.mean, row.interval.low, row.interval.high))
  return (f'{mean} ({low} to {high}), n={len(row.finished)}'
          + (f', {gone}' if lost else ''))


def _measured_table(study, rows):
  columns = list(dict.fromkeys(name for row in rows for name in row))
  numbers = {c for c in columns if all(
      isinstance(row.get(c), int | float | None) for row in rows)}
  shown = [[row.get(column) for column in columns] for row in rows]
  return _beside_paper(study, columns, columns, [
      [value or NONE if value is None or isinstance(value, str) else
       significant(value) for value in row] for row in shown], numbers)


def _compared(study, answered):
  right = 'difference', '95% interval', 'p', 'seeds'
  paper = ('paper',) if study.paper else ()
  return markdown.table(
      ('claim', 'at', *paper, *right, 'result'),
      [(a.claim.text, a.column, *(_of_paper(study, a) for _ in paper),
        *_numbers(a), a.verdict) for a in answered], right=(*paper, *right))


def _of_paper(study, a):
  """Returns the paper's difference, in the unit of its numbers."""
  column, task = a.column, ''
  if column not in study.paper:  # of measured rows with a task
    column, _, task = column.rpartition(', ')
  known = study.paper.get(column, {})
  own, other = (known.get(f'{name}, {task}' if task else name)
                for name in (a.claim.arm, a.claim.than))
  return NONE if None in (own, other) else f'{own - other:+,.4g}'


def _summary(study, answered):
  """Returns [(verdict, the claims with it and their columns)]."""
  found = {verdict: {} for verdict in (SAME, OPPOSITE, UNSURE, EQUAL)}
  for a in answered:
    found.setdefault(a.verdict, {}).setdefault(a.claim.text, []).append(
        a.column)
  known = [a.claim for a in answered]
  for claim in study.claims:
    if claim not in known:
      found.setdefault('no runs yet', {}).setdefault(claim.text, claim.at)
  lines = [(verdict, '; '.join(
      markdown.escape(text.rstrip('.') + (f' ({", ".join(at)})' if at else ''))
      for text, at in claims.items()))
           for verdict, claims in found.items() if claims]
  return [*lines, *(('cannot be tested here', markdown.escape(text))
                    for text in study.untested)]


def _numbers(a):
  if a.low != a.low:  # measured, without an interval
    return significant(a.difference), NONE, NONE, NONE
  return (f'{points(a.difference)} points',
          f'{points(a.low)} to {points(a.high)}', f'{a.p:.2g}',
          str(a.seeds[0]) if a.claim.than.startswith(runs_file.BASELINE)
          else f'{a.seeds[0]} and {a.seeds[1]}')
