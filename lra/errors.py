"""The error that a user can correct, as opposed to a bug of ours."""

import traceback

BUG = 1  # exit code, after a traceback
USER_ERROR = 2  # exit code


class UserError(Exception):
  """An error that the user can correct: one sentence with the remedy.

  `run_lra.py` and `python -m data_prep` print the sentence without a
  traceback and exit with a non-zero code.
  """


def explained(path: str, error: BaseException, name: str = '') -> str:
  """Returns file, line and reason of an error raised in a user's file.

  Args:
    path: the file, as it was given to Python.
    error: the error that was raised.
    name: name of the file in the sentence; by default its path.
  """
  lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
           if frame.filename == path]
  reason = str(error)
  if isinstance(error, SyntaxError):
    lines, reason = [error.lineno] if error.filename == path else lines, (
        error.msg)
  where = f'{name or path}, line {lines[-1]}' if lines else name or path
  reason = ' '.join(f'{type(error).__name__}: {reason}'.split())
  return f'{where}: {reason.removesuffix(":")}.'
