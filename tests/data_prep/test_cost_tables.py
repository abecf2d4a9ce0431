"""Tests of tables that are read row by row."""

import gzip

import pytest

from lra.core.errors import UserError
from lra.data_prep import tables


def test_a_cut_archive_names_the_line_that_could_not_be_read(tmp_path):
  path = tmp_path / 'rows.tsv.gz'
  path.write_bytes(gzip.compress(b'a\tb\nc\td\n')[:-8])
  read = tables.read_rows(path)
  assert [next(read), next(read)] == [(1, ['a', 'b']), (2, ['c', 'd'])]
  with pytest.raises(UserError, match='rows.tsv.gz, line 3: damaged archive'):
    next(read)
