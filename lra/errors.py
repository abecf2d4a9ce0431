"""The error a user can mend, as opposed to a bug of ours."""

USER_ERROR = 2  # exit code


class UserError(Exception):
  """Something the user can fix: one sentence that says what to do.

  `run_lra.py` and `python -m data_prep` print the sentence without a
  traceback and exit with a non-zero code.
  """
