"""The error that a user can correct, as opposed to a bug of ours."""

import difflib
import re
import traceback
from collections.abc import Iterable

BUG = 1  # exit code, after a traceback
USER_ERROR = 2  # exit code
_FEW = 12  # so many names are listed even beside a likely one


class UserError(Exception):
  """An error that the user can correct: one sentence with the remedy.

  Commands print it without a traceback. Functions that read a path, a config or
  a flag may raise it.
  """


class Impossible(UserError):
  """A config whose fields contradict each other, or this machine."""


def check_given(arguments: Iterable[str]) -> None:
  """Raises UserError for an empty value, such as that of --models=."""
  for flag in arguments:
    if re.fullmatch('(--?[a-z_]+=)?', flag) and 'compile_cache' not in flag:
      raise UserError(f'{flag or repr(flag)} names nothing: write a value, or '
                      'leave it out.')


def explained(path: str, error: BaseException, name: str = '') -> str:
  """Returns file, line and reason of an error raised in a user's file."""
  lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
           if frame.filename == path]
  reason = str(error)
  if isinstance(error, SyntaxError):
    lines, reason = [error.lineno] if error.filename == path else lines, (
        error.msg)
  where = f'{name or path}, line {lines[-1]}' if lines else name or path
  reason = ' '.join(f'{type(error).__name__}: {reason}'.split())
  return f'{where}: {reason.removesuffix(":")}.'


def meant(name: object, known: Iterable[str], likeness: float = 0.6) -> str:
  """Returns the known name that a wrong one is likeliest to mean, or ''."""
  found = difflib.get_close_matches(
      str(name).lower(), list(known), 1, likeness)
  return found[0] if found else ''


def choose(name: object, known: Iterable[object]) -> str:
  """Returns the end of an error about an unknown name: names to choose from."""
  names = list(map(str, known))
  close = meant(name, names)
  if not close:
    return f'choose one of {", ".join(names)}.'
  others = [other for other in names if other != close]
  one_of = 'one of ' if len(others) > 1 else ''
  return f'did you mean {close}' + (
      f', or {one_of}{", ".join(others)}?' if 0 < len(others) < _FEW else '?')
