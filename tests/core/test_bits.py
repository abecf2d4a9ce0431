"""Flags packed as text are restored, and invalid text is refused."""

import numpy as np
import pytest

from lra.core import bits


@pytest.mark.parametrize('count', [0, 1, 8, 13, 2000])
def test_what_goes_in_comes_out(count):
  flags = np.random.default_rng(count).random(count) < 0.3
  text = bits.pack(flags)
  assert len(text) <= count / 6 + 4
  np.testing.assert_array_equal(bits.unpack(text, count), flags)


def test_the_first_example_is_the_highest_bit():
  assert bits.pack([True, False, False, True]) == 'kA=='  # 0b1001_0000


@pytest.mark.parametrize('text, count', [
    ('kA==', 3), ('kA==', 9), ('kA=', 4), ('k ==', 4), ('', 1), ('/w==', 7)])
def test_a_text_of_another_number_is_refused(text, count):
  with pytest.raises(ValueError):
    bits.unpack(text, count)
