"""State size: how many numbers a layer keeps from token to token.

With these numbers and its own input, the output of a token can be computed.
A recurrence keeps its state. Linear attention keeps one matrix for each head.
Softmax attention keeps the keys and values of all tokens that may still be
read. A convolution keeps the inputs under its kernel.

Heads, channels and directions are summed, and a complex number counts as two.
A sum over all tokens serves both directions, so it counts once.
"""

import inspect

import flax.linen as nn

from lra.core.errors import UserError


def state_size(mixer: nn.Module, width: int, length: int) -> int | None:
  """Returns the state size of one layer, or None if its mixer does not know it.

  Args:
    mixer: a mixer with a method `state_size(width)`, or
      `state_size(width, length)` if its state depends on the length.
    width: D of the encoder.
    length: L, CLS included.

  Raises:
    UserError: the method returns neither a count nor None.
  """
  method = getattr(mixer, 'state_size', None)
  if method is None:
    return None
  grows = 'length' in inspect.signature(method).parameters
  size = method(width, length) if grows else method(width)
  if size is not None and (type(size) is not int or size < 0):
    raise UserError(
        f'{type(mixer).__module__}: state_size returns {size!r}: return the '
        'number of numbers kept, an int, or None.')
  return size


def under_kernel(taps: int, channels: int, length: int) -> int:
  """Returns how many numbers a convolution with `taps` taps keeps."""
  return min(taps, length) * channels
