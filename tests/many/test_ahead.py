"""Tests of `ahead.Helper`; short scripts stand for the compiling process."""

import math
import os
import time

from lra.many import ahead


def _helper(code):
  return ahead.Helper(('-c', code), dict(os.environ))


def test_what_was_compiled_is_not_compiled_again(tmp_path):
  ran = tmp_path / 'ran'
  helper = _helper(f'open({str(ran)!r}, "a").write("x")')
  for key in ('a', 'a', 'b'):
    helper.begin(key, ())
    helper.finish(math.inf)
  assert helper.compiled == {'a', 'b'} and ran.read_text() == 'xx'


def test_what_could_not_be_compiled_is_tried_again(capsys):
  helper = _helper('raise SystemExit(1)')
  helper.begin('a', ())
  helper.finish(math.inf)
  assert not helper.compiled
  assert 'could not be compiled ahead' in capsys.readouterr().err


def test_a_deadline_ends_it():
  helper = _helper('import time; time.sleep(600)')
  helper.begin('a', ())
  helper.finish(time.monotonic())
  assert not helper.compiled
