"""The error a user can mend, as opposed to a bug of ours."""

import traceback

BUG = 1  # exit code, after a traceback
USER_ERROR = 2  # exit code


class UserError(Exception):
  """Something the user can fix: one sentence that says what to do.

  `run_lra.py` and `python -m data_prep` print the sentence without a
  traceback and exit with a non-zero code.
  """


def explained(path: str, error: BaseException, name: str = '') -> str:
  """File, line and reason of what was raised while somebody's file was run.

  Args:
    path: the file, as Python was told.
    error: what was raised.
    name: how the file is called in the sentence; by default its path.
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
