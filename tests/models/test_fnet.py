"""Compares the Fourier transform with matrices of cosines and sines."""

import functools

import numpy as np
import pytest

from lra.models.fnet import Mixer
from tests.helpers import mixer_oracle


def _angles(n):
  return 2 * np.pi * np.outer(np.arange(n), np.arange(n)) / n


def oracle(xp, params, x, mask, full, orthonormal=True):
  _, n, width = x.shape
  rows, columns = _angles(full)[:n, :n], _angles(width)
  x = x * mask[..., None]
  y = (xp.einsum('kl,bld,de->bke', np.cos(rows), x, np.cos(columns))
       - xp.einsum('kl,bld,de->bke', np.sin(rows), x, np.sin(columns)))
  return y / (full * width)**0.5 if orthonormal else y


@pytest.mark.parametrize('length, width, full, orthonormal', [
    (17, 8, None, True), (12, 7, 30, True), (12, 1, None, False)])
def test_equals_float64(length, width, full, orthonormal):
  """Tests odd and even widths, and a length cut from 30."""
  x, mask = mixer_oracle.ragged(length, 5, 0, width=width)
  mixer = Mixer(full_length=full, orthonormal=orthonormal)
  mixer_oracle.check(mixer, functools.partial(
      oracle, full=full or length, orthonormal=orthonormal), x, mask)
  assert not mixer.init({}, x, mask, train=False)
