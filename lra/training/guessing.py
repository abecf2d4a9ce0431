"""Notices a run that learns nothing: its loss stays at that of guessing."""

import math

# The loss of a model that only knows how frequent classes are is the entropy of
# the labels; dropout and large steps raise it a little.
_BELOW, _ABOVE = 0.99, 1.05
SHARE = 0.1  # of the steps of a run


def at_guessing(loss: float, entropy: float | None, num_classes: int) -> bool:
  """Returns whether a training loss is that of guessing.

  Args:
    loss: mean cross entropy, in nats.
    entropy: entropy of the labels, in nats; None or 0 for nothing to guess.
    num_classes: C; a uniform guess has the loss ln C.
  """
  return bool(entropy) and (
      _BELOW * entropy <= loss <= _ABOVE * math.log(num_classes))
