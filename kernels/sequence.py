"""Linear operations on sequences whose tokens are sharded over devices.

Each device of a mesh axis has a part of every sequence. All it needs from the
other parts is a state, [B, H, Dh, E], of a size that does not depend on L. It
starts from this state and computes the rest alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import chunks, xla
from lra.kernels.linear import features


class Sequence(NamedTuple):
  """Cut of sequences of `length` tokens over the `devices` of a mesh axis.

  The first device has the first tokens; all devices have equally many.
  """
  axis: str
  devices: int
  length: int


def check_whole(*, initial_state=None, return_state=False, segment_ids=None,
                **_):
  """Raises NotImplementedError for an option that needs whole sequences."""
  asked = {'initial_state': initial_state is not None,
           'return_state': return_state, 'segment_ids': segment_ids is not None}
  for name, there in asked.items():
    if there:
      raise NotImplementedError(f'{name} is not possible with tokens sharded '
                                'over devices: leave it out, or set the mesh '
                                'axis of sequences to 1')


def sums(sequence, inputs, options):
  """Returns the state (S, z) of the tokens of other devices, by one all-reduce.

  z is only there with `normalize`.
  """
  _, k, v = inputs.apart()
  phi_k = features.apply(options.feature_map, k).astype(k.dtype)
  phi_k = xla.keep(inputs.mask, phi_k)
  own = (xla.einsum('blhd,blhe->bhde', phi_k, v),
         jnp.sum(phi_k, axis=1, dtype=jnp.float32))
  whole = lax.psum(own, sequence.axis)
  others = jax.tree.map(jnp.subtract, whole, own)
  return others if options.normalize else others[0]


def state_before(sequence, inputs, options):
  """Returns the state of the tokens on earlier devices.

  It takes 1 + log2(devices) exchanges; each after the second goes twice as far
  as the one before. k and v of `inputs` are 0 at masked tokens.
  """
  del options
  (_, k, v), slopes_H = inputs.apart(), inputs.slopes
  length = k.shape[1]
  end_LxH = chunks.to_end(slopes_H[None], jnp.arange(length)[:, None], length)
  k_end = xla.weighed(k, end_LxH[None, ..., None])
  state = xla.einsum('blhd,blhe->bhde', k_end, v)
  state, reach = _from_before(sequence, state, 1), 1
  while reach < sequence.devices:
    left_H = chunks.over(slopes_H, length * reach)
    state += left_H[None, :, None, None] * _from_before(sequence, state, reach)
    reach *= 2
  return state


def _from_before(sequence, x, distance):
  """Returns x of the device `distance` earlier, zeros if there is none."""
  pairs = [(i, i + distance) for i in range(sequence.devices - distance)]
  return lax.ppermute(x, sequence.axis, pairs)
