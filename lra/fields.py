"""Every field of a config: what it means, its range, its default.

Constants only. `configs/base.py` makes configs from these declarations, a run
is checked against them, and `lra.identity` leaves out of a run's hash what
was declared after the first records were made.
"""

import dataclasses
from typing import Any


# In `Field.before`: the field is as old as the first records.
ALWAYS = object()


@dataclasses.dataclass(frozen=True)
class Field:
  """One field of a config.

  Attributes:
    default: its value where neither a protocol nor a model says otherwise;
      None where each protocol must.
    doc: what it means, one or two sentences.
    low, high: inclusive range of a number, None for no limit.
    choices: the values it may have, () for any.
    before: what earlier versions did, which had no such field, as a value of
      it; ALWAYS where the field is as old as the first records.
  """
  default: Any
  doc: str
  low: float | None = None
  high: float | None = None
  choices: tuple = ()
  before: Any = ALWAYS


FIELDS: dict[str, Field] = {}

# Arguments that mixers got after there were records of them:
# model -> argument -> the value that describes what it did before.
ADDED_TO_MODELS: dict[str, dict[str, Any]] = {
    **{model: {'qkv_bias': True} for model in (
        'fastfood_prf', 'fastfood_rks', 'generative_prf', 'generative_rks',
        'gmm_prf', 'gmm_rks', 'linformer', 'optimised', 'simpletron',
        'simpletron_res', 'simpletron_resl')},
    'lightning': {'qkv_bias': True, 'decay_by_depth': False},
    'performer': {'qkv_bias': True, 'eps': 0.0},
}


def added(model: str) -> dict[str, Any]:
  """Later fields -> the values which mean that nothing has changed.

  Args:
    model: name of the model whose arguments are asked for too.
  """
  mixer = ADDED_TO_MODELS.get(model, {})
  return {
      **{name: field.before for name, field in FIELDS.items()
         if field.before is not ALWAYS},
      **{f'model.{name}': value for name, value in mixer.items()}}
