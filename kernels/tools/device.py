"""The device that is here."""

import importlib.util
import os
import pathlib

import jax


def skip_tpu():
  """Has JAX not look for a TPU where there is libtpu, but no accelerator.

  libtpu would complain on stderr. To be called before JAX has looked for any
  device; what JAX_PLATFORMS says counts.
  """
  find = importlib.util.find_spec
  devices = pathlib.Path('/dev')
  accelerators = (
    find('jax_plugins')
    or any(devices.glob('accel*'))
    or any(devices.glob('vfio/*'))
  )
  if 'JAX_PLATFORMS' not in os.environ and find('libtpu') and not accelerators:
    jax.config.update('jax_platforms', 'cpu')
