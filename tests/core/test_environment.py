"""Tests the allocator of memory; `tests/test_bad_inputs.py` has the checks."""

import platform
import subprocess
import sys

import pytest

# Prints the resident bytes that are left after 200 MB were used and freed.
_CODE = '''
import resource, sys
from lra.core import environment
import numpy as np
if sys.argv[1] == 'keeps':
  environment.keep_freed_memory()
def resident():
  with open('/proc/self/statm') as f:
    return int(f.read().split()[1]) * resource.getpagesize()
before = resident()
block = np.ones(200_000_000, np.uint8)
del block
print(resident() - before)
'''


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='no glibc')
@pytest.mark.parametrize('how, least, most', [
    ('keeps', 190e6, 300e6), ('returns', -1e6, 20e6)])
def test_freed_memory_is_kept(how, least, most):
  done = subprocess.run([sys.executable, '-c', _CODE, how], check=True,
                        capture_output=True, text=True)
  assert least < int(done.stdout) < most
