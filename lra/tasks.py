"""The tasks of the harness: constants only.

Id 0 is padding and nothing else. Prepared data sets store one byte per token,
and a token's id is that byte plus one. So a vocabulary has one id more than
symbols.
"""

import dataclasses

from lra.errors import UserError


@dataclasses.dataclass(frozen=True)
class Task:
  """The properties of a task that a model needs.

  Attributes:
    name: its name in configs and on the command line.
    dataset: name of the prepared data set (a TFDS builder of `data_prep`).
    variant: the data set's TFDS builder config.
    seq_len: tokens per sequence, L, without the CLS token.
    vocab_size: number of ids, padding included.
    num_classes: C.
    dual: whether an example is a pair of documents.
    title: column title on the leaderboard.
    image: whether tokens are the pixels of an image, row by row.
    probe: whether some of the tokens have a class, instead of the whole
      sequence. The second document of an example holds their positions and
      classes. Probes are mini tasks with a leaderboard table of their own.
    longer: lengths of further tests, such as '64' or '40-256' tokens, for which
      sequences are generated anew.
    answers: number of classes per example in validation and test. The answers
      within one example are not independent of each other.
    mini: whether this is a laptop version, sized for two CPU cores, with a
      leaderboard table of its own.
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

  @property
  def group(self) -> str:
    """Returns 'full', 'mini' or 'probe': its part of the leaderboard."""
    return 'probe' if self.probe else 'mini' if self.mini else 'full'

  def scaled(self, accuracy: float) -> float:
    """Returns an accuracy on a scale from 0 (guessing a class) to 1.

    (accuracy - 1 / C) / (1 - 1 / C), as in the tables of Grazzi et al. 2024,
    arXiv 2411.12537. It is negative for less than guessing.
    """
    chance = 1 / self.num_classes
    return (accuracy - chance) / (1 - chance)


def _probe(name, seq_len, vocab_size, num_classes, title, answers=1,
           longer=None):
  if longer is None:
    longer = tuple(str(seq_len * 2**i) for i in (1, 2, 3))
  return Task(name, 'probes', name, seq_len, vocab_size, num_classes,
              title=title, mini=True, probe=True, answers=answers,
              longer=longer)


# Lengths of Grazzi et al. 2024, and powers of two.
_PUBLISHED = ('64', '128', '256', '40-256')

TASKS = {t.name: t for t in (
    Task('listops', 'listops', 'lra', 2000, 16, 10, title='ListOps'),
    Task('listops_mini', 'listops', 'mini', 32, 16, 10, mini=True,
         title='ListOps mini', longer=('33-64', '65-128')),
    Task('text', 'text', 'lra', 4000, 257, 2, title='Text'),
    Task('text_mini', 'text', 'mini', 512, 257, 2, mini=True,
         title='Text mini'),
    Task('retrieval', 'retrieval', 'aan', 4000, 257, 2, dual=True,
         title='Retrieval'),
    Task('retrieval_rfc', 'retrieval', 'rfc', 4000, 257, 2, dual=True,
         title='RFC citations'),
    Task('image', 'image', 'lra', 1024, 257, 10, image=True, title='Image'),
    Task('image_mini', 'image', 'mini', 256, 257, 10, mini=True, image=True,
         title='Image mini'),
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
)}


def get(name: str) -> Task:
  """Returns the task called `name`.

  Raises:
    UserError: there is no such task; the message lists the known ones.
  """
  if name not in TASKS:
    raise UserError(
        f'Unknown task {name!r}: choose one of {", ".join(sorted(TASKS))}.')
  return TASKS[name]
