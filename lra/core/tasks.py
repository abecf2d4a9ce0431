"""The tasks of the harness, and own tasks of users.

Id 0 is padding and nothing else. Prepared data sets store a code per token, and
a token's id is that code plus one. So a vocabulary has one id more than
symbols.

The file `configs/tasks/NAME.py` of a user describes an own task and makes its
data. The folders of runs, records and exported models have a `task.json` with
the same description, so that they can be used without that file.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from pydantic import Field

from lra.core import files, mad, paths, signals
from lra.core.errors import UserError, choose, explained

# Results of tasks with more classes have no confusion matrix.
MOST_CLASSES = 128
OWN = 'own'  # the data set of own tasks
FOLDER = pathlib.Path('configs', 'tasks')
FILE = 'task.json'
_NAME = '^[a-z][a-z0-9_]{0,63}$'


@dataclasses.dataclass(frozen=True)
class Task:
  """The properties of a task that a model needs.

  Attributes:
    dataset, variant: TFDS builder of `data_prep`, and its builder config.
    seq_len: tokens per sequence, L, without the CLS token.
    vocab_size: number of ids, padding included.
    num_classes: C.
    dual: whether an example is a pair of documents.
    mini: whether this is a laptop version, sized for two CPU cores.
    image: whether tokens are the pixels of an image, row by row.
    probe: whether some of the tokens have a class, instead of the whole
      sequence. The second document of an example holds their positions and
      classes. Probes are mini tasks with a leaderboard table of their own.
    answers: number of classes per example in validation and test, which are not
      independent of each other; the rounded mean if it varies.
    longer: lengths of further tests, such as '64' or '40-256' tokens, for which
      sequences are generated anew.
    compressed: whether a model may predict classes from its encoding of the
      last token only.
    classes: the names of the classes; () for those that `data_prep.encode`
      knows.
    settings: of an own task, the fields of a config in which it differs from
      the mini task of texts or images.
  """
  name: str
  dataset: str
  variant: str
  seq_len: int
  vocab_size: int
  num_classes: int
  dual: bool = False
  title: str = ''
  mini: bool = False
  image: bool = False
  probe: bool = False
  answers: int = 1
  longer: tuple[str, ...] = ()
  compressed: bool = False
  classes: tuple[str, ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(
      default_factory=dict, hash=False)

  own = property(lambda self: self.dataset == OWN)

  @property
  def group(self) -> str:
    """Returns 'full', 'mini', 'laptop', 'probe' or 'own': its part of the page.
    """
    return OWN if self.own else 'probe' if self.probe else (
        'laptop' if self.variant == 'laptop' else
        'mini' if self.mini else 'full')

  @property
  def text(self) -> bool:
    """Returns whether documents are UTF-8, which a tokenizer may split."""
    return self.dataset in ('text', 'zhang') or (
        self.own and not self.image and self.vocab_size == 257)

  @property
  def words(self) -> bool:
    """Returns whether tokens are words, in the order of their frequency."""
    return self.vocab_size > 257 and not self.probe

  @property
  def windows(self) -> bool:
    """Returns whether a part of a document is an example too, as of texts."""
    return self.text or self.dual

  def scaled(self, accuracy: float) -> float:
    """Returns an accuracy on a scale from 0 (guessing a class) to 1.

    (accuracy - 1 / C) / (1 - 1 / C), as in the tables of Grazzi et al. 2024,
    arXiv 2411.12537. It is negative for less than guessing.
    """
    chance = 1 / self.num_classes
    return (accuracy - chance) / (1 - chance)


def _probe(name, seq_len, vocab_size, num_classes, title, answers=1,
           longer=None, compressed=False):
  if longer is None:
    longer = tuple(str(seq_len * 2**i) for i in (1, 2, 3))
  return Task(name, 'probes', name, seq_len, vocab_size, num_classes,
              title=title, mini=True, probe=True, answers=answers,
              longer=longer, compressed=compressed)


def _repeats(setting):
  """Returns about how many keys of a sequence occurred before in it."""
  half = (setting['vocab'] - setting.get('noise_symbols', 0)) // 2
  noise = setting.get('noise', 0)
  # One pair is never noise, and neither is the last one.
  pairs = 1 + noise + (setting['length'] // 2 - 1) * (1 - noise)
  # Pairs less the expected number of different keys.
  return round(pairs - half * (1 - (1 - 1 / half) ** (pairs - 1)))


def _fuzzy(setting):
  """Returns about how many tokens of values of repeated keys a sequence has."""
  half = (setting['vocab'] - 1) // 2
  keys = half * (half - 1) * (half - 2)
  # A pair has 5 tokens on average, of which 2 are the value.
  pairs = (setting['length'] - 13) / 5
  return round(2 + 2 * (pairs - keys * (1 - (1 - 1 / keys) ** pairs)))


# Task of MAD -> its title, and how many answers a sequence of a setting has.
_MAD = {
    'mad_recall': ('MAD recall', _repeats),
    'mad_fuzzy_recall': ('MAD fuzzy recall', _fuzzy),
    'mad_noisy_recall': ('MAD noisy recall', _repeats),
    'mad_copying': ('MAD copying', lambda setting: setting['copied']),
    'mad_compression': ('MAD compression', lambda setting: setting['length']),
    'mad_memorization': (
        'MAD memorization', lambda setting: setting['length'] // 2)}


def _mad(task: str) -> list[Task]:
  """Returns a task of MAD in all its settings, the baseline first."""
  title, answers = _MAD[task]
  return [_probe(
      name, mad.tokens(task, setting['length']), setting['vocab'] + 1,
      setting['vocab'], title + name.removeprefix(task).replace('_', ' '),
      answers(setting), longer=(), compressed=task == 'mad_compression')
          for name, setting in mad.settings(task).items()]


# Lengths of Grazzi et al. 2024, and powers of two.
_PUBLISHED = ('64', '128', '256', '40-256')

TASKS = {t.name: t for t in (
    Task('listops', 'listops', 'lra', 2000, 16, 10, title='ListOps'),
    Task('listops_mini', 'listops', 'mini', 32, 16, 10, mini=True,
         title='ListOps mini', longer=('33-64', '65-128')),
    Task('text', 'text', 'lra', 4000, 257, 2, title='Text'),
    Task('text_mini', 'text', 'mini', 512, 257, 2, mini=True,
         title='Text mini'),
    Task('imdb_words', 'words', 'last_32', 32, 20_002, 2, title='IMDB words'),
    Task('imdb_words_200', 'words', 'last_200', 200, 20_002, 2,
         title='IMDB, 200 words'),
    Task('retrieval', 'retrieval', 'aan', 4000, 257, 2, dual=True,
         title='Retrieval'),
    Task('retrieval_rfc', 'retrieval', 'rfc', 4000, 257, 2, dual=True,
         title='RFC citations'),
    Task('rfc_words', 'retrieval', 'rfc_words', 64, 20_002, 2, dual=True,
         title='RFC citations, words'),
    Task('ag_news', 'zhang', 'ag_news', 1024, 257, 4, title='AG News'),
    Task('amazon', 'zhang', 'amazon', 1024, 257, 5, title='Amazon reviews'),
    Task('image', 'image', 'lra', 1024, 257, 10, image=True, title='Image'),
    Task('image_mini', 'image', 'mini', 256, 257, 10, mini=True, image=True,
         title='Image mini'),
    Task('mnist', 'mnist', 'idx', 784, 257, 10, image=True, title='MNIST'),
    Task('cifar100', 'image', 'cifar100', 1024, 257, 100, image=True,
         title='CIFAR-100'),
    Task('pathfinder', 'pathfinder', '32', 1024, 257, 2, image=True,
         title='Pathfinder'),
    Task('pathfinder_mini', 'pathfinder', 'mini', 256, 257, 2, mini=True,
         image=True, title='Pathfinder mini'),
    Task('pathfinder64', 'pathfinder', '64', 4096, 257, 2,
         image=True, title='Pathfinder 64'),
    Task('pathx', 'pathfinder', '128', 16_384, 257, 2, image=True,
         title='Path-X'),
    Task('pathx256', 'pathfinder', '256', 65_536, 257, 2, image=True,
         title='Path-256'),
    Task('retrieval_rfc_mini', 'retrieval', 'rfc_mini', 512, 257, 2,
         dual=True, mini=True, title='RFC citations mini'),
    Task('listops_laptop', 'listops', 'laptop', 128, 16, 10, mini=True,
         title='ListOps laptop', longer=('129-256',)),
    Task('pathfinder_laptop', 'pathfinder', 'laptop', 256, 257, 2, mini=True,
         image=True, title='Pathfinder laptop'),
    Task('text_laptop', 'text', 'laptop', 1024, 257, 2, mini=True,
         title='Text laptop'),
    _probe('mqar', 128, 129, 64, 'Associative recall', answers=32),
    _probe('selective_copying', 64, 17, 14, 'Selective copying', answers=8),
    _probe('parity', 32, 3, 2, 'Parity',
           longer=_PUBLISHED),
    _probe('permutations_3', 12, 7, 6, 'Permutations of three'),
    _probe('permutations_5', 12, 121, 5, 'Permutations of five'),
    _probe('formal_parity', 40, 3, 2, 'Parity, asked at the end',
           longer=_PUBLISHED),
    _probe('modular_arithmetic', 40, 10, 5, 'Modular arithmetic',
           longer=_PUBLISHED),
    _probe('modular_arithmetic_brackets', 40, 12, 5,
           'Modular arithmetic with brackets', longer=_PUBLISHED),
    _probe('s3_words', 32, 7, 6, 'Words of S3'),
    _probe('s5_words', 32, 121, 120, 'Words of S5'),
    _probe('s5_swaps', 32, 11, 120, 'Words of swaps in S5'),
    _probe('s5_cycles', 32, 31, 120, 'Words of swaps and 3-cycles in S5'),
    _probe('a5_words', 32, 61, 60, 'Words of A5'),
    _probe('even_pairs', 40, 3, 2, 'Even pairs'),
    _probe('cycle_navigation', 40, 4, 5, 'Cycle navigation'),
    _probe('missing_duplicate', 40, 5, 2, 'Missing duplicate'),
    _probe('bucket_sort', 80, 7, 5, 'Bucket sort', answers=40),
    _probe('dyck', 40, 17, 9, 'Nested brackets'),
    _probe('mqar_forgetting', 96, 129, 64, 'Recall with updates', answers=16),
    _probe('mqar_compositional', 96, 193, 64, 'Recall by two keys',
           answers=16),
    _probe('mqar_zoology', 256, 8193, 8192, 'Recall (Zoology)', answers=25,
           longer=('64/4', '64/8', '64/16', '128/32', '256/64', '512/128',
                   '1024/256')),
    _probe('phonebook', 102, 39, 10, 'Phone book', answers=4),
    _probe('copying', 46, 11, 8, 'Copying', answers=20),
    _probe('regbench_mini', 128, 6, 2, 'Random automata', answers=32),
    *(_mad(task)[0] for task in mad.BASELINES),
)}
# The harder settings of MAD. Lists of tasks leave them out.
HARDER = {t.name: t for task in mad.BASELINES for t in _mad(task)[1:]}


def get(name: str) -> Task:
  """Returns a task; raises UserError, which lists the names, if there is none.
  """
  task = find(name)
  if task is None:
    known = sorted([*TASKS, *own_names()])
    raise UserError(f'Unknown task {name!r}: {choose(name, known)}')
  return task


def find(name: str) -> Task | None:
  """Returns the task of this name, also an own one; None if there is none."""
  return TASKS.get(name) or HARDER.get(name) or (
      _of_file(name) if file(name) else _learnt.get(name))


class Own(pydantic.BaseModel):
  """The description of an own task: the upper-case names of its file."""
  model_config = pydantic.ConfigDict(strict=True)
  name: Annotated[str, Field(pattern=_NAME)]
  seq_len: Annotated[int, Field(ge=1, le=2**20)]
  classes: Annotated[
      tuple[Annotated[str, Field(pattern=r'\S', max_length=1000)], ...],
      Field(min_length=2, max_length=2**15 - 1)]
  vocab_size: Annotated[int, Field(ge=2, le=257)] = 257
  image: bool = False
  title: Annotated[str, Field(max_length=100)] = ''
  settings: dict[str, Any] = {}

  @pydantic.model_validator(mode='after')
  def _is_possible(self):
    if len(set(self.classes)) < len(self.classes):
      raise ValueError('classes has a name twice')
    if self.image and math.isqrt(self.seq_len)**2 != self.seq_len:
      raise ValueError('the seq_len of square images is a square number')
    if not all(isinstance(self.settings.get(group, {}), dict) for group in (
        'mesh', 'train', 'optim', 'encoder', 'pretrain', 'model')):
      raise ValueError('settings has a group of fields that is no dict')
    check_name(self.name)
    return self

  @property
  def task(self) -> Task:
    return Task(self.name, OWN, self.name, self.seq_len, self.vocab_size,
                len(self.classes), title=self.title or self.name, mini=True,
                image=self.image, classes=self.classes, settings=self.settings)


def check_name(name: str) -> None:
  """Raises ValueError for a name that no own task may have."""
  if not re.fullmatch(_NAME, name) or name in TASKS or name in HARDER:
    raise ValueError(f'{name!r} is no name for an own task, or one that this '
                     'program has: use a-z, 0-9 and _')


_learnt: dict[str, Task] = {}


def file(name: str) -> pathlib.Path | None:
  """Returns the file of an own task, None if there is none."""
  if not name.isidentifier():
    return None
  path = paths.found(FOLDER / f'{name}.py')
  return path if path.is_file() else None


def own_names() -> list[str]:
  """Returns the names of the own tasks that have a file."""
  return sorted({path.stem for folder in (FOLDER, paths.PACKAGE / FOLDER)
                 for path in folder.glob('[a-z]*.py') if file(path.stem)})


def contents(name: str) -> dict[str, Any]:
  """Returns the names that the file of an own task defines."""
  path = file(name)
  return _executed(str(path), path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=100)
def _executed(path, mtime_ns):
  del mtime_ns  # of an edited file, which is read again
  try:
    code = files.read(path)
    names = {'__name__': 'own_task', '__file__': path,
             'DIGEST': hashlib.sha256(code).hexdigest()}
    exec(compile(code, path, 'exec'), names)
  except (UserError, signals.Stop):
    raise
  except (Exception, SystemExit) as e:  # a user's file may raise anything
    raise UserError(explained(path, e)) from e
  return names


def _of_file(name):
  names = contents(name)
  return _described(file(name), {'name': name} | {
      field: names[field.upper()] for field in Own.model_fields
      if field != 'name' and field.upper() in names}).task


def _described(path, values):
  """Returns the `Own` of JSON values; an error names the file `path`."""
  try:
    return Own.model_validate_json(json.dumps(values))
  except (TypeError, ValueError, RecursionError) as e:
    reason = str(e)
    if isinstance(e, pydantic.ValidationError):
      first = e.errors(include_url=False)[0]
      reason = f'{".".join(map(str, first["loc"])).upper()}: {first["msg"]}'
    raise UserError(f'{path} does not describe a task ({reason.strip(": ")}): '
                    'see docs/add-a-task.md.') from e


def description(task: Task) -> dict[str, Any]:
  """Returns the fields of `Own` of a task, as JSON values."""
  return {name: getattr(task, name) for name in Own.model_fields}


def described(task: Task) -> dict[str, bytes]:
  """Returns {FILE: the description of an own task}; {} for another task."""
  text = json.dumps(description(task), indent=1) + '\n'
  return {FILE: text.encode()} if task.own else {}


def learn(folder: str | os.PathLike) -> None:
  """Makes an own task known if the folder describes it, and no file does."""
  path = pathlib.Path(folder, FILE)
  values = files.read_json(path)
  named = values.get('name') if isinstance(values, dict) else None
  if values is not None and named not in {**TASKS, **HARDER}:
    task = _described(path, values).task
    _learnt[task.name] = task
