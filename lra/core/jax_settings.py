"""Settings of JAX and Flax that every run sets itself."""

import flax
import jax

from lra.core.terminal import say

# All but the last decide which random numbers a seed gives.
_FIXED = (
    (jax.config, 'jax_enable_x64', False),
    (jax.config, 'jax_default_prng_impl', 'threefry2x32'),
    (jax.config, 'jax_threefry_partitionable', True),
    (jax.config, 'jax_random_seed_offset', 0),
    (jax.config, 'jax_high_dynamic_range_gumbel', False),
    (flax.config, 'flax_fix_rng_separator', False),
    (jax.config, 'jax_disable_jit', False))  # steps are compiled ahead
NAMES = tuple(name for _, name, _ in _FIXED)


def fix() -> None:
  """Sets `_FIXED` for the whole process; prints the settings it has changed."""
  changed = []
  for config, name, value in _FIXED:
    # A version without a setting behaves as its default.
    if getattr(config, name, value) != value:
      config.update(name, value)
      changed.append(f'{name.upper()}={value}')
  if changed:
    say(f'Every run sets {", ".join(changed)}: other values are ignored.')
