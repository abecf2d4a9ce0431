"""Compares the configs of runs with their protocols."""

import functools
from typing import Any

from configs import base
from lra.config import identity
from lra.errors import UserError
from lra.records.result import Result


def compared(run: Result) -> Result:
  """Returns the run with the `changes` of its config from its protocol.

  The current protocol decides, since it names the table: a run made under older
  values is no row of it either. The record decides on fields outside the
  protocol (a mixer's own arguments) and if the protocol is unknown here.
  """
  said = says(run.task, run.protocol)
  others = {name: value for name, value in (run.changes or {}).items()
            if name not in said}
  changes = others | identity.changes(run.config, said)
  if changes == (run.changes or {}):
    return run
  return run.model_copy(update={'changes': changes})


@functools.cache
def says(task: str, protocol: str) -> dict[str, Any]:
  """Returns {dotted field: value}, or {} if the protocol is unknown here."""
  try:
    return base.settings(task, protocol)
  except UserError:
    return {}
