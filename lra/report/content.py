"""What is on the leaderboard's page, whatever draws it: tables, in order."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lra.report import columns, pairs, published, rows, speeds
from lra.report.columns import Column
from lra.report.formats import NONE, percent
from lra.report.published import Published
from lra.report.records import LeftOut
from lra.report.row import Row, mean
from lra.report.row import Table as Key
from lra.report.rows import Floor, TaskBoard
from lra.report.speeds import Speeds

TITLE = 'Long Range Arena leaderboard'
# Code is between backticks.
WHAT = (
    'Test accuracies of attention mechanisms, and of what is used in their '
    'place, on the tasks of Long Range Arena, each beside its task\'s highest '
    'floor: what a method without a neural network scores. A mechanism that '
    'is not above the floor, or by chance (n.s.), is not known to have learnt '
    'more of the task than such a method finds.')
BEST = (
    'The best row of each full task and protocol, of those with at most 110% '
    'of the Transformer\'s parameters. Scores of different protocols are not '
    'comparable.')
OVERVIEW = (
    'Mean test accuracy; of a model run in several configurations, the one '
    'with the most seeds, then the most steps, then the highest accuracy on '
    'validation. Only runs with the settings of their protocol. †: more than '
    '110% of the Transformer\'s parameters.')
COMPARED = (
    'Published results are on other test examples: the interval of the '
    'deviation takes each as one run on as many as here (Newcombe 1998). Where '
    'the protocol is not quite theirs, `configs/protocols.py` says so.')
EXPLANATIONS = (
    'Accuracies are percentages of the whole test split, read once at the end '
    'of a run: means over seeds with their 95% interval (Student\'s t). Of a '
    'single seed, marked by a star, the interval is that of its test examples '
    'alone (Wilson) and says nothing of other seeds; so is that of seeds which '
    'all have the same accuracy.',
    '"Rank" is between which places of its table a row belongs: below the rows '
    'that are told to be better, above those that are told to be worse, at 5% '
    'for all pairs together (Holm); the details name the places of the rows '
    'that it is not told from. Where a sentence below a table says how far '
    'seeds are apart, rows are told apart by it, those of one seed too '
    '(Student\'s t with one standard deviation for all rows, on these test '
    'examples). Where too few rows have several seeds for that, or where some '
    'spread more than others (Bartlett\'s test at 1%), it is by Welch\'s test '
    'where both have three seeds or more, else by McNemar\'s exact test of the '
    'examples of the first seed of each, or Fisher\'s, which finds less, where '
    'a record does not say which examples were right ("answers" is "not '
    'kept"). By examples of one seed two trained networks are told apart: '
    'other seeds of the same two mechanisms may come in another order.',
    '"Above floor" is the accuracy minus the highest floor, in points; "n.s." '
    'where it cannot be told from the floor, by the same tests, at 5% for all '
    'rows of the table together. "As first operator": how often the answer is '
    'that of the floor of this name. Parameters in bold are more than 110% of '
    'the Transformer\'s of the same task and protocol, which is the arena\'s '
    'limit. "Steps to 95%": the first validated step with so high an accuracy '
    'on validation, of the slowest seed.',
    'In the details, "a / b / c" is of the seeds of a row in their order, one '
    'for each, "–" of one without; a single value is that of all of them. '
    'Times and memory are means where all seeds ran on one device, otherwise '
    'of each seed as well.',
    '"Mean of 5", of full tasks, is Long Range Arena\'s average over ListOps, '
    'Text, Retrieval, Image and Pathfinder, "mean of 6" that with Path-X too: '
    'of models with a score on each of them, under one protocol. RFC citations '
    'do not stand in for Retrieval.',
    'A run whose settings are not its protocol\'s is in a table of its own, '
    'which names them; seeds, data folders and what only fits a run to a '
    'machine are free. "Modified" beside a commit: what ran is not what is in '
    'it. The file of a model may have changed since a record was made: to '
    'repeat a run exactly, check out its commit first.')
GROUPS = {
    'full': ('Full tasks', ''),
    'mini': ('Mini tasks', (
        'Small versions of the tasks for a laptop; not Long Range Arena '
        'scores.')),
    'probe': ('Probes', (
        'Not of Long Range Arena: generated sequences that ask for one ability '
        'each; `data_prep/probes.py` says how. Accuracies are of single tokens '
        'that are asked for a class, and "test examples" counts these. The '
        'papers that they are from train causal models; here all rows but '
        'those of causal mechanisms, as `lightning`, see both directions. A '
        'recurrence that tracks parity or permutations is not linear or has '
        'negative or complex eigenvalues (Grazzi et al. 2024, arXiv '
        '2411.12537). No mechanism here has one: expect scores near the floor. '
        'A few points above it are more than chance, and far from the task.')),
}
# Task -> what its scores need to be read.
NOTES = {
    'listops': (
        '"Decided at depth d" is of expressions whose value is certain once '
        'what stands inside at most d operators is read: of the 2,000 drawn '
        'for test 382 at depth 1, by the digits next to the outermost '
        'operator, 456 at 2, 301 at 3, 231 at 4, 630 deeper. Rows near the '
        'floor answer nearly all of the first kind, a third of the second, and '
        'of the others not many more than by guessing: what they have learnt '
        'is to read the outermost operator and its own digits.'),
    'pathfinder_mini': (
        'Black pixels are padding in this task, and the first row of pixels is '
        'black in all but one of 1,000 images: the first positions hold no '
        'token. What `attention_sink`, `bigbird`, `duo`, `etc` and '
        '`longformer` do with them is not tried here, and little of what '
        '`star` does with its first block.'),
    'mqar': (
        'A convolution of the protocol joins each token to the three before. '
        'What makes linear attention recall is not measured. `lightning` '
        'differs from `linear_transformer` in four things at once: it is '
        'causal; its features (SiLU) may be negative; it does not divide by a '
        'sum of weights; and it normalises what it reads (RMS). Its decay, '
        '0.4% a token with one head, is hardly one, and it has no gate. '
        '`simpletron` has neither features nor a norm. A guess: 32 pairs fill '
        'a state of 32 x 32 numbers, so that what positive features add from '
        'the other pairs hides the one that is wanted.'),
    'selective_copying': (
        'A place asks for the symbol of its number: a model must count symbols '
        'and fetch by the count. A row between the highest floor and all of it '
        'has learnt a part in the steps of the protocol; whether more steps '
        'would teach it the rest has not been tried.'),
}
PUBLISHED = (
    'Percentages as their sources print them, in no order of merit. Pooling, '
    'heads, vocabularies and budgets differ between protocols, so these are '
    'compared within one protocol only (within `mixed` not even there) and '
    'never ranked with the rows above. FAIL: not learnt. The means are made '
    'here, of the five tasks without Path-X and of all six, where one that was '
    'not learnt counts 50. Secondary: read in another paper\'s table. '
    'Recalled: not read again in the paper.')


@dataclasses.dataclass(frozen=True)
class Table:
  """A table.

  Attributes:
    columns: what it says of each item.
    items: what it has a row of, in order.
    pinned: how many of the first items stay at the top, whatever the order.
  """
  columns: Sequence[Column]
  items: Sequence[Any]
  pinned: int = 0


@dataclasses.dataclass(frozen=True)
class Best:
  """The best row of a task and a protocol; None where none is finished."""
  board: TaskBoard
  row: Row | None


@dataclasses.dataclass(frozen=True)
class Score:
  """An accuracy, a fraction, or None; its digits after the point; and whether
  the model has more than 110% of the Transformer's parameters."""
  accuracy: float | None
  digits: int = 2
  heavy: bool = False

  @property
  def text(self) -> str:
    return percent(self.accuracy, self.digits) + (' †' if self.heavy else '')


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of an overview.

  Attributes:
    model, protocol: what has these scores.
    scores: of each task.
    is_floor: whether it is that of the highest floors.
  """
  model: str
  protocol: str
  scores: Mapping[str, Score]
  is_floor: bool = False

  def mean(self, names: Sequence[str]) -> Score:
    """Over tasks; a score of nothing where one of them has none."""
    scores = [self.scores.get(name, Score(None)) for name in names]
    found = [score.accuracy for score in scores]
    return Score(None) if None in found else Score(
        mean(found), min(score.digits for score in scores),
        any(score.heavy for score in scores))


@dataclasses.dataclass(frozen=True)
class Scores:
  """The rows of a task that can be compared.

  Attributes:
    key: what they have in common.
    warning: the highest floor, if no row is above it.
    twins: sets of rows whose test scores are equal in every seed.
    spread: how far seeds are apart, None where that is not known.
    table: of the rows.
    compared: beside what was published, None for nothing.
  """
  key: Key
  warning: Floor | None
  twins: list[list[Row]]
  spread: pairs.Spread | None
  table: Table
  compared: Table | None


@dataclasses.dataclass(frozen=True)
class Group:
  """The tasks of one part of the page: those with rows, and those of the others
  that are named there."""
  name: str
  begun: list[TaskBoard]
  waiting: list[TaskBoard]

  title = property(lambda self: GROUPS[self.name][0])
  what = property(lambda self: GROUPS[self.name][1])

  @property
  def overview(self) -> Table:
    """Mean accuracies, one column for each task, floors above the scores.

    And their means over tasks as published ones have, once a line has all.
    """
    boards = self.begun
    floors = Line('highest floor', '', {
        b.task.name: Score(b.highest) for b in boards}, is_floor=True)
    pairs = sorted({(r.protocol, r.model) for b in boards for r in b.rows
                    if not r.changes})
    lines = [Line(model, protocol, {
        b.task.name: _score(b.usual(protocol, model)) for b in boards})
        for protocol, model in pairs]
    averages = [names for names in published.AVERAGES if any(
        line.mean(names).accuracy is not None for line in lines)]
    return Table(columns.overview([b.task for b in boards], averages),
                 [floors, *lines], pinned=1)


def _score(row):
  return Score(row.mean, row.digits, row.heavy) if row else Score(None)


@dataclasses.dataclass(frozen=True)
class Content:
  """All that the page is made of.

  Attributes:
    boards: of the tasks that have rows or floors.
    papers: the published results.
    left_out: the records that are not shown.
    speeds: of the models, timed side by side; None where nobody did.
  """
  boards: list[TaskBoard]
  papers: list[Published]
  left_out: list[LeftOut]
  speeds: Speeds | None

  @functools.cached_property
  def groups(self) -> list[Group]:
    said = {board.task.name for board in self.waiting}
    return [Group(name, *([b for b in self.boards if b.task.group == name
                           and bool(b.rows) == begun
                           and b.task.name not in said]
                          for begun in (True, False))) for name in GROUPS]

  @property
  def waiting(self) -> list[TaskBoard]:
    """The full tasks without rows, if others have some: named below `best`."""
    full = rows.full(self.boards)
    return [b for b in full if not b.rows] if any(b.rows for b in full) else []

  @property
  def best(self) -> Table:
    """The best rows of the full tasks that have rows."""
    lines = []
    for board in self.boards:
      if board.task.group == 'full' and board.rows:
        found = [rows.best(members) for key, members
                 in board.tables().items() if not key.changed]
        lines += [Best(board, row) for row in filter(None, found)] or [
            Best(board, None)]
    return Table(columns.BEST, lines)

  def scores(self, board: TaskBoard) -> list[Scores]:
    """The tables of a task."""
    found = []
    for key, members in board.tables().items():
      compared = [] if key.changed else published.compare(
          members, self.papers, board.task.name, key.protocol)
      found.append(Scores(
          key, _floor_of_all(members, board.floors), _twins(members),
          board.spreads.get(key), _said(columns.SCORES, members),
          _said(columns.COMPARED, compared) if compared else None))
    return found

  @property
  def published(self) -> dict[str, Table]:
    """The published results by protocol."""
    return {name: Table(columns.PUBLISHED, [
        paper for paper in self.papers if paper.protocol == name])
        for name in sorted({paper.protocol for paper in self.papers})}


def load(runs_dir: pathlib.Path, floors_dir: pathlib.Path,
         published_csv: pathlib.Path | None,
         speed_json: pathlib.Path | None) -> Content:
  """Reads what the page is made of.

  Args:
    runs_dir: folder of result records, searched recursively; may be missing.
    floors_dir: folder of floors records, `<task>.json`; may be missing.
    published_csv: the published results, None for none.
    speed_json: see `speeds.read`; None for none.

  Raises:
    UserError: a published row is not sound, and names its line; or
      `speed_json` is not.
  """
  boards, left_out = rows.load(runs_dir, floors_dir)
  papers = published.read(published_csv) if published_csv else []
  return Content(boards, papers, left_out,
                 speeds.read(speed_json) if speed_json else None)


def floors(board: TaskBoard) -> Table | None:
  """The floors of a task, lowest first; None where there are none."""
  return Table(columns.FLOORS, board.floors) if board.floors else None


def details(board: TaskBoard) -> Table:
  """What else is known of each row of a task."""
  return _said([c for c in columns.DETAILS
                if board.task.dual or c.name not in columns.PAIRS], board.rows)


def made_of(board: TaskBoard) -> Table | None:
  """What the accuracies of a task are made of; None where nobody says."""
  found = columns.made_of(board.finished)
  return _said(found, board.finished) if found else None


def alike(board: TaskBoard) -> str:
  """What all examples of test have in common, '' for nothing."""
  return ' '.join(
      f'All examples of test have {name} {value}: it tells none apart.'
      for name, value in columns.alike(board.finished).items())


def with_floor(board: TaskBoard) -> str:
  """A task and its highest floor, in words."""
  if not board.floors:
    return f'{board.task.title} (no floor has been computed)'
  floor = board.floors[-1]
  return (f'{board.task.title} (highest floor {percent(floor.accuracy)} %, '
          f'{floor.name})')


def no_row_is_above(floor: Floor) -> str:
  """What it means that no row of a table is above a floor."""
  return (f'no row is above the floor {floor.name} '
          f'({percent(floor.accuracy)} %) by more than chance, so no model is '
          'known to have learnt more here than a method without a neural '
          'network finds.')


def seeds_differ(spread: pairs.Spread) -> str:
  """How far the seeds of a row are apart."""
  return (f'Seeds of one row differ by {percent(spread.deviation)} points: the '
          f'standard deviation within the {spread.rows} rows of several seeds '
          f'({spread.degrees} degrees of freedom).')


def equal_scores(twins: Sequence[Row]) -> str:
  """What it means that the test scores of rows are equal."""
  names = ' and '.join(row.name for row in twins)
  return (f'{names} have the same loss and the same right answers in every '
          'seed: with these settings they are one model.')


def _said(shown: Iterable[Column], items: Sequence) -> Table:
  """A table without the optional columns that say nothing of any item."""
  return Table([c for c in shown if c.name not in columns.OPTIONAL or any(
      c.text(item) not in ('', NONE) for item in items)], items)


def _floor_of_all(rows, floors):
  """The highest floor where no row is above its own by more than chance."""
  compared = [row for row in rows if row.above_floor is not None]
  if not compared or any(r.off_floor and r.above_floor > 0 for r in compared):
    return None
  return floors[-1]


def _twins(rows):
  """Sets of two rows or more with equal test scores."""
  same = {}
  for row in rows:
    kept = [(run.seed, run.test.loss, run.test.correct) for run in row.finished]
    if kept and all(correct for _, _, correct in kept):
      same.setdefault(tuple(kept), []).append(row)
  return [twins for twins in same.values() if len(twins) > 1]
