"""What runs changed of their protocols, whatever their records say of it."""

import functools
from typing import Any

from configs import base
from lra import identity
from lra.errors import UserError
from lra.report.result import Result


def compared(run: Result) -> Result:
  """The run with the `changes` that its config has from its protocol.

  What the protocol of today says of a field decides: a table is named after
  it, so that a run made under older values is no row of it either. Of other
  fields, as a mixer's own arguments, and of protocols that are not known here,
  the record's word is all there is.
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
  """{dotted field: value}, or {} where the protocol is not known here."""
  try:
    return base.settings(task, protocol)
  except UserError:
    return {}
