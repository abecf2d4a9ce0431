"""The catalogue made from the docstrings of the models."""

import pathlib

import pytest

from lra.errors import UserError
from lra.report import catalogue

FOO = '''"""Foo: mixes a | b, badly.

Prose that says Cost: nothing.

Family: sparse
Equation: softmax(Q K^T | mask) V
  per head
Cost: O(L M)
Source: Doe et al. 2020, arXiv 2001.00001,
  eq. 3
"""

import no_such_module

from lra.models import helper

KERNELS = helper.CHOICES
MIXES_PADDING = True


class Mixer:
  pass
'''
BAR = '''"""Bar: a plain one.

Family: dense
Equation: X W
Cost: O(L D^2)
Source: nobody
"""

KERNELS = ('xla', 'pallas_tpu')


class Mixer(Base):
  pass
'''
HELPER = '"""Shared things."""\n\nCHOICES = ("one", "two")\n'

README = """\
## Dense

| model | what | equation | cost | kernels | padding | source |
| :-- | :-- | :-- | :-- | :-- | --: | :-- |
| [`bar`](bar.py) | **Bar**: a plain one. | `X W` | `O(L D^2)` \
| xla, pallas_tpu | – | nobody |

## Sparse

| model | what | equation | cost | kernels | padding | source |
| :-- | :-- | :-- | :-- | :-- | :-- | :-- |
| [`foo`](foo.py) | **Foo**: mixes a \\| b, badly. \
| `softmax(Q K^T \\| mask) V per head` | `O(L M)` | one, two | mixes padding \
| Doe et al. 2020, arXiv 2001.00001, eq. 3 |
"""


@pytest.fixture
def folder(tmp_path):
  for name, text in (('foo', FOO), ('bar', BAR), ('helper', HELPER)):
    (tmp_path / f'{name}.py').write_text(text)
  return tmp_path


def test_docstrings_are_read_without_importing(folder):
  bar, foo = catalogue.read(folder)
  assert foo == catalogue.Entry(
      'foo', 'Foo', 'mixes a | b, badly.', 'sparse',
      'softmax(Q K^T | mask) V per head', 'O(L M)',
      'Doe et al. 2020, arXiv 2001.00001, eq. 3', ('one', 'two'), True)
  assert bar == catalogue.Entry(
      'bar', 'Bar', 'a plain one.', 'dense', 'X W', 'O(L D^2)', 'nobody',
      ('xla', 'pallas_tpu'), False)


def test_readme_is_the_one_written_by_hand(folder):
  assert catalogue.readme(folder).endswith(README)
  path = catalogue.write_readme(folder)
  assert path == folder / 'README.md'
  assert path.read_text('utf-8') == catalogue.readme(folder)


def test_listing_has_a_column_per_task(folder):
  params = {'foo': {'listops': 1234, 'text': 5}, 'bar': {'text': 67890}}
  assert catalogue.listing(catalogue.read(folder), params) == """\
model  family  cost      kernels          listops    text
bar    dense   O(L D^2)  xla, pallas_tpu        -  67,890
foo    sparse  O(L M)    one, two           1,234       5
"""


def test_listing_against_the_transformer(folder, monkeypatch):
  monkeypatch.setattr(catalogue, 'REFERENCE', 'bar')
  params = {'foo': {'text': 75}, 'bar': {'text': 60}}
  lines = catalogue.listing(catalogue.read(folder), params).splitlines()
  assert lines[1].endswith('  60 1.00x') and lines[2].endswith('  75 1.25x')


def test_an_unknown_family_comes_last(folder):
  (folder / 'aaa.py').write_text(BAR.replace('dense', 'spectral'))
  assert list(catalogue.families(catalogue.read(folder))) == [
      'dense', 'sparse', 'spectral']


@pytest.mark.parametrize('old, new, reason', [
    ('Cost: O(L D^2)\n', '', '"Cost: ..."'),
    ('Source: nobody', 'Source:', '"Source: ..."'),
    ('Equation: X W', 'Equation: X W\nEquation: X', '"Equation: ..."'),
    ('Bar: a plain one.', 'A plain one.', '"Name: what it is."'),
    ("('xla', 'pallas_tpu')", 'tuple(some())', 'line 9: write KERNELS'),
    ('class', 'klass', 'is not Python'),
])
def test_a_bad_model_file_is_named(folder, old, new, reason):
  (folder / 'bar.py').write_text(BAR.replace(old, new))
  with pytest.raises(UserError) as error:
    catalogue.read(folder)
  assert str(folder / 'bar.py') in str(error.value)
  assert reason in str(error.value)


def test_every_model_here_is_in_the_catalogue():
  models = {p.stem for p in pathlib.Path(catalogue.MODELS).glob('*.py')
            if '\nclass Mixer(' in p.read_text('utf-8')}
  assert models and {e.name for e in catalogue.read()} == models


def test_the_committed_readme_is_current():
  text = (catalogue.MODELS / 'README.md').read_text('utf-8')
  assert text == catalogue.readme(), (
      'run `python -m lra.catalogue` and commit what it writes')
