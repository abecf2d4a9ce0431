"""Commands as words: `evaluate RUN` is `--evaluate=RUN`.

The flags of `lra.cli.options` stay; this only translates the arguments before
they are parsed.
"""

from collections.abc import Sequence

from lra.core import paths
from lra.core.errors import UserError, meant

_TRAIN = 'train'
# Word -> the words that must follow it; ... means one or more of the last.
FORMS = {
    _TRAIN: '', 'evaluate': 'RUN', 'predict': 'FILE RUN',
    'compare': 'RUN RUN', 'curves': 'FIGURE RUN ...', 'export': 'FOLDER RUN',
    'leaderboard': '', 'studies': '', 'check_record': 'FILE', 'list': '',
    'sweep': 'FILE', 'suite': 'NAME'}
# Words that run_lra.py takes before this module.
_OTHERS = ('data', 'costs')
_HELP = {'-h', '--help', '--helpshort', '--helpfull'}


def flags(arguments: Sequence[str]) -> list[str]:
  """Translates the arguments of a command with a word into those with flags.

  Args:
    arguments: those of the process, without the program's name.

  Returns:
    The arguments; unchanged if they begin with a flag.

  Raises:
    UserError: the word is unknown, or other words must follow it.
  """
  if not arguments or arguments[0].startswith('-'):
    return list(arguments)
  word, *rest = arguments
  if word not in FORMS:
    raise UserError(f'Unknown command {word!r}: {_hint(word)}')
  count = next((i for i, argument in enumerate(rest)
                if argument.startswith('-')), len(rest))
  said, others = rest[:count], rest[count:]
  if _HELP & {*others}:
    return others
  wanted = FORMS[word].split()
  more = wanted[-1:] == ['...'] and count >= len(wanted) - 1
  if count != len(wanted) and not more:
    form = ' '.join([*paths.program(), word, FORMS[word]])
    raise UserError(
        f'{word} needs {FORMS[word]} directly after it: {form}' if wanted else
        f'{word} takes flags only, but {said[0]} is none: flags begin with --.')
  if word == _TRAIN:
    return others
  if word == 'compare' or not said:
    return [f'--{word}', *others, *said]
  return [f'--{word}={said[0]}', *others, *said[1:]]


def _hint(word):
  """Returns the end of an error about a word that is no command."""
  program = ' '.join(paths.program())
  if '.py' in word or ':' in word:
    return f'a config is given as {program} --config={word}.'
  known = (*FORMS, *_OTHERS)
  close = meant(word, known)
  return (f'did you mean {program} {close}?' if close else
          f'choose one of {", ".join(known)}, or give flags, which begin with '
          '--.')
