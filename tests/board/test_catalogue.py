"""Tests the catalogue, which reads the models' files without importing them."""

import subprocess

import pytest

from lra import models
from lra.board import catalogue

FOO = '''"""Foo: mixes a | b, badly.

Prose that says Source: nothing.

Equation: softmax(Q K^T | mask) V
  per head
Source: Doe et al. 2020, arXiv 2001.00001,
  eq. 3; Roe 2021, arXiv 2101.00001
"""

import no_such_module

ABOUT = About('sparse', 'O(L M)', time=1.5, kernels=('one', 'two'),
              mixes_padding=True)


class Mixer:
  pass
'''
BAR = '''"""Bar: a plain one.

Equation: X W
Source: nobody
"""

ABOUT = About('dense', 'O(L D^2)', memory=2, kernels=('xla', 'pallas_tpu'))


class Mixer(Base):
  pass
'''
PRIVATE = '"""Shared things."""\n'

README = """\
## Dense

| model | what | equation | cost | kernels | padding | source |
| :-- | :-- | :-- | :-- | :-- | :-- | :-- |
| [`bar`](bar.py) | **Bar**: a plain one. | `X W` | `O(L D^2)` \
| xla, pallas_tpu | – | nobody |

## Sparse

| model | what | equation | cost | kernels | padding | source |
| :-- | :-- | :-- | :-- | :-- | :-- | :-- |
| [`foo`](foo.py) | **Foo**: mixes a \\| b, badly. \
| `softmax(Q K^T \\| mask) V per head` | `O(L M)` | one, two | mixes padding \
| Doe et al. 2020, arXiv 2001.00001, eq. 3; Roe 2021, arXiv 2101.00001 |
"""


@pytest.fixture
def folder(tmp_path):
  for name, text in (('foo', FOO), ('bar', BAR), ('_private', PRIVATE)):
    (tmp_path / f'{name}.py').write_text(text)
  return tmp_path


def test_models_are_read_without_importing(folder):
  bar, foo = catalogue.read(folder)
  assert foo == catalogue.Entry(
      'foo', 'foo', 'Foo', 'mixes a | b, badly.',
      'softmax(Q K^T | mask) V per head',
      'Doe et al. 2020, arXiv 2001.00001, eq. 3; Roe 2021, arXiv 2101.00001',
      'sparse', 'O(L M)',
      {'time': 1.5, 'memory': 1}, ('one', 'two'), True)
  assert bar == catalogue.Entry(
      'bar', 'bar', 'Bar', 'a plain one.', 'X W', 'nobody', 'dense', 'O(L D^2)',
      {'time': 1, 'memory': 2}, ('xla', 'pallas_tpu'), False)
  assert catalogue.problems(folder) == []


def test_readme_is_the_one_written_by_hand(folder):
  assert catalogue.readme(catalogue.read(folder)).endswith(README)
  path = catalogue.write_readme(folder)
  assert path == folder / 'README.md'
  assert path.read_text('utf-8').endswith(README)


PEERS = """\
test,model,package,version,output,gradient
test_b.test_foo,foo,b_pack,2.0,1.0e-07,2.0e-07
test_a.test_foo,foo,a-pack,1.0,3.0e-07,4.0e-07
test_a.test_other,other,a-pack,1.0,3.0e-07,4.0e-07
"""
BESIDE = """
| model | package | outputs | gradients | test |
| :-- | :-- | --: | --: | :-- |
| `foo` | a-pack 1.0 | 3.0e-07 | 4.0e-07 \
| [`test_foo`](../../tests/peers/test_a.py) |
| `foo` | b_pack 2.0 | 1.0e-07 | 2.0e-07 \
| [`test_foo`](../../tests/peers/test_b.py) |

We know no package that computes the same function as: `bar`.
"""


def test_other_implementations_are_listed_where_there_are_any(folder, tmp_path):
  (tmp_path / 'peers.csv').write_text(PEERS)
  peers = catalogue.read_peers(tmp_path / 'peers.csv')
  bar, foo = catalogue.read(folder)
  assert catalogue.readme([bar, foo], peers).endswith(BESIDE)
  assert 'No package' not in catalogue.readme([foo], peers)
  assert catalogue.readme([bar], peers) == catalogue.readme([bar])


TABLE = """\
model  family  paper (arXiv)                listops    text  state size  cost
bar    dense   nobody                             -  67,890           -  \
O(L D^2)
foo    sparse  Doe et al. 2020, 2001.00001    1,234       5          64  O(L M)
"""
PARAMS = {'foo': {'listops': 1234, 'text': 5}, 'bar': {'text': 67890}}


def test_listing_against_the_transformer(folder, monkeypatch):
  monkeypatch.setattr(catalogue, 'REFERENCE', 'bar')
  params = {'foo': {'text': 75}, 'bar': {'text': 60}}
  lines = catalogue.listing(params, folder).splitlines()
  assert '  60 1.00x  ' in lines[1] and '  75 1.25x  ' in lines[2]


def test_an_unknown_family_comes_last(folder):
  (folder / 'aaa.py').write_text(BAR.replace('dense', 'spectral'))
  assert list(catalogue.families(catalogue.read(folder))) == [
      'dense', 'sparse', 'spectral']


@pytest.mark.parametrize('old, new, reason', [
    (BAR, '', 'class Mixer'),
    (BAR, '\0', 'not Python|cannot be read'),
    ('class Mixer', 'class Mixed', 'class Mixer'),
    (BAR[:BAR.index('ABOUT')], '', '"Name: what it is."'),
    ('Bar: a plain one.', 'A plain one.', '"Name: what it is."'),
    ('Source: nobody', 'Source:', '"Source: ..."'),
    ('Equation: X W', 'Equation: X W\nEquation: X', '"Equation: ..."'),
    ('ABOUT =', 'OTHER =', 'a valid family and cost by ABOUT ='),
    ("'dense', ", '', 'a valid family and cost by ABOUT ='),
    ("'O(L D^2)'", '" "', 'a valid cost by ABOUT ='),
    ("'dense'", '3', 'a valid family by ABOUT ='),
    ('memory=2', 'time=3', 'a valid time by ABOUT ='),
    ('memory=2', 'memory=None', 'a valid memory by ABOUT ='),
    ('memory=2', 'space=2', 'a valid family and cost by ABOUT ='),
    ("('xla', 'pallas_tpu')", 'other.KERNELS', 'family and cost by ABOUT ='),
    ("('xla', 'pallas_tpu')", "('xla')", 'a valid kernels by ABOUT ='),
    ('kernels', 'mixes_padding', 'a valid mixes_padding by ABOUT ='),
    ('class', 'klass', 'is not Python'),
])
def test_a_bad_model_is_one_sentence_and_harms_no_other(
    folder, old, new, reason):
  (folder / 'aaa.py').write_text(BAR.replace(old, new))
  sentence, = catalogue.problems(folder)
  assert sentence.startswith(f'{folder / "aaa.py"}: ')
  assert any(r in sentence for r in reason.split('|'))
  assert '\n' not in sentence
  assert [e.name for e in catalogue.read(folder)] == ['bar', 'foo']
  assert catalogue.listing(PARAMS, folder, {'foo': 64}) == (
      f'{TABLE}{sentence}\n')
  assert catalogue.readme(catalogue.read(folder)).endswith(README)


def test_the_models_here_have_no_problem():
  assert not catalogue.problems(), '\n'.join(catalogue.problems())
  assert [e.name for e in catalogue.read()] == list(models.names())


def test_the_committed_readme_is_current():
  """The README lists the committed models, or all models in the folder."""
  listed = subprocess.run(
      ['git', 'ls-files', '*.py'], cwd=catalogue.MODELS, text=True,
      capture_output=True, check=False)
  if listed.returncode:
    pytest.skip('not a git checkout')
  committed = [e for e in catalogue.read()
               if f'{e.file}.py' in listed.stdout.split()]
  text = (catalogue.MODELS / 'README.md').read_text('utf-8')
  peers = catalogue.read_peers()
  assert text in (catalogue.readme(committed, peers),
                  catalogue.readme(catalogue.read(), peers)), (
      'run `python -m lra.board.catalogue` and commit what it writes')
