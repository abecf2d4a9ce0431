"""The local device."""

import importlib.util
import os
import pathlib

import jax


def skip_tpu():
  """Keeps JAX from searching for a TPU if there is no accelerator.

  An installed libtpu would print errors to stderr. Call this before JAX has
  searched for devices. JAX_PLATFORMS takes precedence.
  """
  find = importlib.util.find_spec
  devices = pathlib.Path('/dev')
  accelerators = (find('jax_plugins') or any(devices.glob('accel*'))
                  or any(devices.glob('vfio/*')))
  if 'JAX_PLATFORMS' not in os.environ and find('libtpu') and not accelerators:
    jax.config.update('jax_platforms', 'cpu')
