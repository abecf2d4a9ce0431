"""Archives are read in bounded memory, whatever sizes their headers state."""

import gzip
import io
import re
import tarfile
import tracemalloc

import pytest

from lra.core.errors import UserError
from lra.data_prep import archives

LARGE = 1 << 26
EXTENDED = {'GNU longname': tarfile.GNUTYPE_LONGNAME,
            'GNU longlink': tarfile.GNUTYPE_LONGLINK,
            'pax': tarfile.XHDTYPE, 'global pax': tarfile.XGLTYPE}


def header(kind, size):
  member = tarfile.TarInfo('x')
  member.type, member.size = kind, size
  return member.tobuf(tarfile.GNU_FORMAT)


def add(tar, name, content):
  member = tarfile.TarInfo(name)
  member.size = len(content)
  tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def packed(tmp_path):
  """Returns a function that writes parts to a gzip file.

  A part is bytes, or the number of zero bytes, a multiple of 2^20.
  """
  def make(*parts):
    path = tmp_path / 'a.tar.gz'
    with gzip.open(path, 'wb', compresslevel=1) as f:
      for part in parts:
        if isinstance(part, int):
          for _ in range(part >> 20):
            f.write(bytes(1 << 20))
        else:
          f.write(part)
    return path
  return make


def read(path):
  return list(archives.files(path, lambda member: True))


def sound(**files):
  held = io.BytesIO()
  with tarfile.open(fileobj=held, mode='w') as tar:
    for name, content in files.items():
      add(tar, name, content)
  return held.getvalue()


@pytest.mark.parametrize('before', [b'', sound(a=b'1')[:1024]])
@pytest.mark.parametrize('kind', EXTENDED)
def test_a_large_header_is_not_read(kind, before, packed):
  path = packed(before, header(EXTENDED[kind], LARGE), LARGE)
  tracemalloc.start()
  try:
    with pytest.raises(UserError, match=re.escape(f'{path} is damaged or not '
                                                  'an archive (headers of')):
      read(path)
    assert tracemalloc.get_traced_memory()[1] < LARGE / 8
  finally:
    tracemalloc.stop()


def test_the_size_of_a_sparse_file_bounds_nothing(packed):
  path = packed(header(tarfile.GNUTYPE_SPARSE, 0), sound(a=b'1'))
  with pytest.raises(UserError, match='a sparse file'):
    read(path)


def test_a_chain_of_headers_has_an_end(packed):
  link = header(tarfile.GNUTYPE_LONGNAME, 1) + b'a'.ljust(512, b'\0')
  path = packed(*[link] * 2000)
  with pytest.raises(UserError, match='is damaged or not an archive'):
    read(path)


@pytest.mark.parametrize('form', [
    tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_large_files_with_long_names_are_read(form, tmp_path):
  long = 15 if form == tarfile.USTAR_FORMAT else 150
  content = {f'{"d" * 80}/{i}{"n" * long}': bytes([i]) * n
             for i, n in enumerate((0, 1, 3 << 20, 513))}
  with tarfile.open(tmp_path / 'a.tar', 'w', format=form) as tar:
    for name, text in content.items():
      add(tar, name, text)
  assert dict(read(tmp_path / 'a.tar')) == content
