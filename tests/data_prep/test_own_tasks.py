"""Own tasks: made of a table or a file, trained, recorded and taken home."""

import gzip
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lra
from lra import data_prep
from lra.board import publish
from lra.board.site import Place
from lra.cli import list as list_word
from lra.configs import base
from lra.core import tasks
from lra.core.errors import UserError
from lra.data import baselines
from lra.data_prep import __main__ as command
from lra.data_prep import own, table
from lra.data_prep.content import SPLITS
from lra.run import train
from lra.run.experiment import resolve
from lra.schema import result
from tests.helpers import documents, small

TABLE = ['--csv=mine.csv', '--text=review', '--label=stars', '--name=mine']


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
  """Runs each test in a folder of its own, which has the data, too."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'data'))
  monkeypatch.setattr(tasks, '_learnt', {})
  return tmp_path


def rows(count=60, classes=('1', '2')):
  return [(f'text {i} is {"good" if i % len(classes) else "bad"}',
           classes[i % len(classes)]) for i in range(count)]


def write(found, path='mine.csv', header='review,stars', delimiter=','):
  lines = [header.replace(',', delimiter)] + [
      delimiter.join('"' + field.replace('"', '""') + '"' for field in row)
      for row in found]
  pathlib.Path(path).write_text('\n'.join(lines) + '\n', encoding='utf-8')


def make(*flags):
  return command.main([*TABLE, *flags])


ODD = [('He said "no, no"', 'NA'), ('two\nlines', '01'), ('=1+1, é ✓', '1')]


@pytest.mark.parametrize('kind', ['utf-8', 'utf-8-sig', 'latin-1', 'utf-16',
                                  ';', '\t', 'gz', '\r\n'])
def test_texts_and_labels_are_read_as_they_are(kind):
  odd = [(a.replace('✓', '') if kind == 'latin-1' else a, b) for a, b in ODD]
  write(odd, delimiter=kind if kind in (';', '\t') else ',')
  path, encoding = pathlib.Path('mine.csv'), 'utf-8'
  if kind == 'gz':
    path.write_bytes(gzip.compress(path.read_bytes()))
  elif kind == '\r\n':
    path.write_bytes(path.read_bytes().replace(b'"\n', b'"\r\n'))
  elif kind not in (';', '\t'):
    encoding = kind.removesuffix('-sig')
    path.write_bytes(path.read_text('utf-8').encode(kind))
  assert table.read('mine.csv', 'review', 'stars', encoding) == (odd, 0)


@pytest.mark.parametrize(('change', 'flags', 'word'), [
    (lambda b: b.replace(b'good', b'g\xfcte'), [], '--encoding=latin-1'),
    (lambda b: b.decode().encode('utf-16'), [], 'UTF-8'),
    (lambda b: b, ['--encoding=utf-99'], 'utf-99'),
    (lambda b: b, ['--text=reviews'], 'did you mean review'),
    (lambda b: b.replace(b'stars', b'review'), [], '2 columns'),
    (lambda b: b + b'a,b,c\n', [], 'line 62'),
    (lambda b: b + b'"a,b\n', [], 'line 62'),
    (lambda b: b.replace(b'"2"', b'"1"'), [], 'two or more'),
    (lambda b: b + b'once,3\n', [], "'3'"),
    (lambda b: b'', [], 'no column'),
    (lambda b: b, ['--name=listops'], 'listops'),
    (lambda b: b, ['--name=../x'], '../x'),
    (lambda b: b, ['--length=0'], 'SEQ_LEN'),
    (lambda b: b, ['--csv=other.csv'], 'other.csv'),
    (lambda b: b, ['--csv=.'], 'directory'),
    (lambda b: b, ['--test_csv=none.csv'], 'none.csv'),
    (lambda b: b, ['--task=text'], '--task')])
def test_a_table_that_makes_no_task_is_refused_in_a_sentence(
    change, flags, word, capsys, here):
  write(rows())
  path = pathlib.Path('mine.csv')
  path.write_bytes(change(path.read_bytes()))
  assert make(*flags) == 2
  error = capsys.readouterr().err
  assert word in error and len(error.splitlines()) == 1
  assert not list(here.rglob('*.py')) and not (here / 'data' / 'own').exists()


def test_facts_about_a_table_are_said(capsys):
  write([*rows(100), *rows(12), *((f'rare {i}', '5') for i in range(3)),
         ('', '1'), ('text 0 is bad', '2'), ('x' * 600, '1')])
  write(rows(8), 'test.csv')
  assert make('--test_csv=test.csv') == 2  # class 5 is not in the tests
  write([*rows(8), ('odd', '5')], 'test.csv')
  capsys.readouterr()
  assert make('--test_csv=test.csv') == 0
  said = capsys.readouterr().out
  for word in ('3 classes', 'imbalance', 'less than 5%: 1', 'are cut',
               'label: 1 rows', 'several labels', 'in train and test',
               '--baselines', ':mine'):
    assert word in said, word


def test_splits_hold_all_classes_and_no_text_twice():
  write([*rows(1000), *rows(100), ('a', '3'), ('b', '3'), ('c', '3')])
  assert make() == 0
  found = data_prep.read('mine')
  assert [len(found.splits[name].labels) for name in SPLITS] == pytest.approx(
      [880, 110, 110], abs=25)
  assert all({*found.splits[name].labels.tolist()} == {0, 1, 2}
             for name in SPLITS)
  assert not any(count for name, count in found.info['duplicates'].items()
                 if ' and ' in name)
  assert make() == 0  # the same command again changes nothing
  assert data_prep.read('mine').fingerprint == found.fingerprint
  texts = tasks.get('mine')
  assert texts.text and texts.classes == ('1', '2', '3')


@pytest.mark.parametrize('flags', [
    TABLE, ['--task=mine', '--baselines', '--baselines_dir=floors']])
def test_a_table_that_has_changed_is_not_taken_for_the_old_one(flags, capsys):
  write(rows())
  assert make() == 0
  write(rows(80))
  assert command.main(flags) == 2
  assert 'another --name' in capsys.readouterr().err
  pathlib.Path('mine.csv').unlink()
  assert command.main(['--task=mine']) == 0  # it is prepared


def test_baselines_of_an_own_task(capsys):
  pytest.importorskip('sklearn')
  write([*rows(400), ('a', '1')])
  assert make('--baselines', '--baselines_dir=floors') == 0
  kept = baselines.read(pathlib.Path('floors/mine.json'))
  assert kept.methods['byte n-grams'].accuracy > 0.9
  assert kept.methods['majority'].accuracy < 0.6


@pytest.mark.parametrize('protocol', ['', ',protocol=s4', ',protocol=nystrom'])
def test_every_protocol_with_mini_tasks_has_own_tasks(protocol):
  write(rows())
  assert make() == 0
  mine, mini = (base.get_config(f'{name}{protocol}', 'transformer')
                for name in ('mine', 'text_mini'))
  mini.task = 'mine'
  assert mine.to_dict() == mini.to_dict()
  assert resolve(mine).objective.num_classes == 2
  assert 'mine' in list_word.listing()
  with pytest.raises(UserError, match='probes'):
    base.get_config('mine,protocol=probes', 'transformer')


LETTERS = 'configs/tasks/letters.py'


def letters(change=lambda text: text):
  path = pathlib.Path(LETTERS)
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(change(documents.example(LETTERS)))


def test_the_file_of_the_documents_makes_a_task(capsys):
  letters()
  assert command.main(['--task=letters', '--describe']) == 0
  found = data_prep.read('letters')
  assert len(found.splits['test']) == 1000
  assert base.get_config('letters', 'simpletron').train.steps == 400
  letters(lambda text: text.replace('4000', '3000'))
  assert command.main(['--task=letters']) == 0  # made again
  assert len(data_prep.read('letters').splits['train']) == 3000


@pytest.mark.parametrize(('old', 'new', 'word'), [
    ('SEQ_LEN = 64', 'SEQ_LEN = "64"', 'SEQ_LEN'),
    ('SEQ_LEN = 64', '', 'SEQ_LEN'),
    ("('a', 'b', 'c')", "('a', 'a', 'b')", 'twice'),
    ("('a', 'b', 'c')", "('a', 'b')", 'label'),
    ('import random', 'import randomm', 'randomm'),
    ('def make', 'def made', 'make'),
    ("('test', 1000)", "('tests', 1000)", 'test'),
    (".encode()", '', 'TypeError'),
    ('size in (', 'size in )', 'line 13'),
    ("{'steps': 400}", '7', 'is no dict'),
    ("{'steps': 400}", "{'stps': 400}", 'did you mean config.train.steps'),
    ('k=64', 'k=0', 'empty')])
def test_a_wrong_file_is_named_with_its_fault(old, new, word):
  letters(lambda text: text.replace(old, new))
  with pytest.raises(UserError) as error:
    resolve(base.get_config('letters', 'simpletron'))
    data_prep.prepare('letters')
  assert word in str(error.value)
  assert not list(pathlib.Path('data').rglob('dataset_info.json'))


def test_unknown_tasks_get_the_name_of_an_own_one():
  letters()
  with pytest.raises(UserError, match='did you mean letters'):
    base.get_config('leters', 'simpletron')


def test_an_own_task_is_trained_recorded_and_taken_home(
    here, monkeypatch, quick_runs):
  write(rows(classes=('bad', 'good', 'unsure')))
  assert make() == 0
  folder = here / 'runs' / 'one'
  c = small.config('transformer', 'mine', steps=2, eval_every=2)
  trained = train.train(small.experiment(c, folder))
  place = Place(here / 'results', here / 'page.md')
  publish.publish(result.read(folder / 'result.json'), place)
  page = place.page.read_text()
  assert page.index('Own tasks') < page.index('[transformer](')
  assert 'No run yet' not in page
  assert 'mine.md' in page and (place.details / 'mine.md').exists()
  # Elsewhere there is neither the file of the task nor its data.
  away = here / 'away'
  away.mkdir()
  shutil.copytree(folder, away / 'run')
  shutil.copytree(place.results, away / 'results')
  monkeypatch.chdir(away)
  monkeypatch.setenv('TFDS_DATA_DIR', str(away / 'data'))
  monkeypatch.setattr(tasks, '_learnt', {})
  predicted, = lra.load('run').predict(['text 1'])
  assert predicted.name in ('bad', 'good', 'unsure')
  with pytest.raises(UserError, match=r'mine\.py'):
    lra.load('run').evaluate()
  monkeypatch.setattr(tasks, '_learnt', {})
  publish.regenerate(Place(away / 'results', away / 'page.md'))
  assert '[transformer](' in (away / 'page.md').read_text()
  assert trained.test is not None
  assert np.isclose(predicted.probabilities.sum(), 1)


@pytest.mark.parametrize('values', [
    {}, {'name': 'x', 'seq_len': 2**40, 'classes': ['a', 'b']},
    {'name': '../x', 'seq_len': 8, 'classes': ['a', 'b']},
    {'name': 'x', 'seq_len': 8, 'classes': 'ab'}, [], 'x'])
def test_a_foreign_description_is_checked(values, here):
  own.files.write_json(here / tasks.FILE, values)
  with pytest.raises(UserError, match=tasks.FILE):
    tasks.learn(here)
  assert not tasks._learnt


@pytest.mark.full
def test_the_command_line_makes_and_trains_an_own_task(here):
  write(rows(200))
  for flags in (['data', *TABLE], [
      '--config=configs/transformer.py:mine', '--config.train.steps=2',
      '--norecord']):
    done = subprocess.run(
        [sys.executable, pathlib.Path(lra.__file__).parents[1] / 'run_lra.py',
         *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
  assert 'test accuracy' in done.stdout
