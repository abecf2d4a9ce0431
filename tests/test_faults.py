"""The list of faults fits the code and the tests as they are."""

import re

import faults

LISTED = faults.read()


def _fits(fault):
  text = (faults.ROOT / fault['file']).read_text('utf-8')
  return text.count(fault['before']) == 1 and fault['after'] != fault['before']


def _is_there(test):
  file, _, name = test.partition('::')
  name = name.partition('[')[0]
  path = faults.ROOT / file
  return path.exists() and (not name or re.search(
      rf'^def {name}\(', path.read_text('utf-8'), re.MULTILINE))


def test_each_can_be_put_in():
  assert [f['name'] for f in LISTED if not _fits(f)] == []


def test_each_names_tests_that_there_are():
  assert [(f['name'], test) for f in LISTED for test in f['test']
          if not _is_there(test)] == []
