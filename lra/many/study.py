"""Studies: experiments of papers, each a TOML file of configs/studies/.

A study trains arms: configs that differ in what the experiment varies. Each arm
has one line of a sweep, with `{task}` in the place of the task, so that
`--sweep=configs/studies/transfer.toml` trains a study. Its claims compare two
arms. `lra.many` writes the page that answers them from records.
"""

import pathlib
import tomllib
from typing import Literal

import pydantic

from lra.core import files, paths, tasks
from lra.core.errors import UserError, choose, meant
from lra.data_prep.baselines import names as baselines_of
from lra.schema import grid
from lra.schema.record import reason

FOLDER = pathlib.Path('configs', 'studies')
SUFFIX = '.toml'
_MAX_BYTES = 2**20
TASK = '{task}'
BASELINE = 'baseline '


class _Part(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(strict=True, frozen=True, extra='forbid')


class Arm(_Part):
  """The runs of one kind.

  Attributes:
    name: its name on the page.
    line: a line of a sweep without seeds; may hold `{task}`.
  """
  name: str
  line: str


class Claim(_Part):
  """A difference that a paper reports or expects.

  Attributes:
    text: the claim, a sentence.
    arm: name of an arm, or of the first cell of a measured row.
    than: the arm or the row that it is compared with, or `baseline` and the
      name of a baseline of the task.
    expected: how `arm` compares with `than` in the paper; '' if that is not
      known.
    at: the columns that the claim is about; () means all. Of measured rows, the
      one column that is compared.
  """
  text: str
  arm: str
  than: str
  expected: Literal['higher', 'lower', 'equal', ''] = ''
  at: list[str] = []


class Study(_Part):
  """A study.

  Attributes:
    name: name of its file.
    title, question: for the page.
    source: the paper and its section.
    reported: the paper's own result, in words.
    differs: how the experiment differs from the paper's.
    tasks: values for `{task}`.
    axis: a config field with several values in the lines. They are the columns
      of the table, which otherwise are the tasks.
    seeds: the seeds of each arm, as a sweep writes them.
    arms, claims: see `Arm` and `Claim`.
    draws: name of a further figure, see `lra.many.study_figure`; '' for none.
  """
  name: str
  title: str
  question: str
  source: str
  reported: str
  differs: str = ''
  tasks: list[str] = []
  axis: str = ''
  seeds: str = '0'
  arms: list[Arm] = []
  claims: list[Claim] = []
  draws: Literal['', 'mixer_std', 'runtime'] = ''

  @property
  def lines(self) -> list[tuple[Arm, str]]:
    """Returns (arm, line of a sweep), arm by arm."""
    return [(arm, f'{arm.line.replace(TASK, task)} seeds={self.seeds}')
            for arm in self.arms
            for task in (self.tasks if TASK in arm.line else [''])]


def read(path: pathlib.Path) -> Study:
  """Reads a study.

  Args:
    path: a TOML file; see `lra.core.paths.found`.

  Raises:
    UserError: it cannot be read, or a field is missing, unknown or wrong.
  """
  try:
    text = files.read(paths.found(path), _MAX_BYTES).decode()
    study = Study.model_validate({**tomllib.loads(text), 'name': path.stem})
  except pydantic.ValidationError as e:
    raise UserError(f'The study {path}: {reason(e)}: correct it.') from e
  except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
    close = None if path.exists() else meant(path.stem, names())
    raise UserError(
        f'Cannot read the study {path} ({getattr(e, "strerror", None) or e}): '
        + (f'did you mean {FOLDER / close}{SUFFIX}?' if close else
           'give a file like those of configs/studies/.')) from e
  try:
    _check_axis(study)
    _check_claims(study)
  except UserError as e:
    raise UserError(f'The study {path}: {e}') from e
  return study


def _check_axis(study):
  """Raises UserError if the axis has no values, or another field has several.
  """
  if study.axis and not any(f'{study.axis}=' in a.line for a in study.arms):
    raise UserError(f'no line of an arm sets its axis {study.axis}: correct '
                    'it, or leave it out.')
  for arm in study.arms:
    for change in grid.words(arm.line)[1:]:
      name = change.partition('=')[0]
      if name != study.axis and len(grid.values(change)) > 1:
        raise UserError(f'the arm {arm.name} has several values of {name}, '
                        'which is not the axis: make an arm of each value.')


def _check_claims(study):
  """Raises UserError if a claim compares no arms.

  A claim about other rows must name a column. The page then looks for both
  among the measured rows.
  """
  arms = {arm.name for arm in study.arms}
  trained = [grid.words(line)[0].partition(':')[2].partition(',')[0]
             for _, line in study.lines]
  baselines = {
      f'{BASELINE}{name}' for task in trained if task in tasks.TASKS
      for name in baselines_of(tasks.TASKS[task])}
  for claim in study.claims:
    if claim.arm == claim.than:
      raise UserError(f'the claim {claim.text!r} compares {claim.arm} with '
                      'itself: name another arm.')
    if claim.at and claim.arm not in arms:
      continue
    for name, known in ((claim.arm, arms), (claim.than, arms | baselines)):
      if name not in known:
        raise UserError(f'the claim {claim.text!r} is about {name!r}: '
                        + (choose(name, sorted(known)) if known else
                           'give a column `at` of measured rows.'))


def names() -> list[str]:
  """Returns the names of the studies of this package."""
  return sorted(p.stem for p in (paths.PACKAGE / FOLDER).glob(f'*{SUFFIX}'))
