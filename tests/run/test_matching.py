"""Tests that names match as in `re`, but with a time limit."""

import re
import time

import pytest

from lra.core.errors import UserError
from lra.run import matching

NAMES = tuple(f'encoder/block_{i}/mixer/{name}/kernel' for i in range(6)
              for name in ('query', 'key', 'value', 'out'))


@pytest.mark.parametrize('patterns', [
    ('.*',), ('(?:.*/)*kernel',), ('.*query.*', '.*block_[0-2].*', 'key'), (),
    ('encoder', r'.*\bvalue\b.*'), ('.*/(q|k).*', '.*(out|key)/kernel')])
def test_the_first_match_of_the_whole_name_counts(patterns):
  assert list(matching.first(patterns, NAMES, 'config.x')) == ([
      next((i for i, p in enumerate(patterns) if re.fullmatch(p, name)), None)
      for name in NAMES] if patterns else [])


@pytest.mark.every(3)
@pytest.mark.parametrize('pattern', [
    '(.*.*.*.*.*.*.*.*.*)*zzz', '([a-z/_0-9]+)+!', '(?:a|e|[a-z/_0-9]|.)*!',
    30 * '.*' + '!', '(?=(.*.*)*!)x'])
def test_an_expression_that_would_not_end_is_named(pattern, monkeypatch):
  monkeypatch.setattr(matching, 'SECONDS', 1)
  start = time.process_time()
  with pytest.raises(UserError, match=re.escape(repr(pattern))):
    matching.first(('.*x', pattern), NAMES, 'config.x')
  assert time.process_time() - start < 1  # the parent only waits
