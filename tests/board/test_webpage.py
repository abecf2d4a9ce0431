"""Tests that HTML pages have the Markdown pages' tables and escape text."""

import copy
import json
import re

import markdown_it
import pytest

from lra.board import charts, suite
from tests.helpers import commands, scored
from tests.helpers.page import FLOORS, RUNS, Page, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols', 'no_charts')
EVIL = '<script>alert(1)</script>"\'><img src=x onerror=alert(1)> {{ 7 * 7 }} &'
MORE = [make('simpletron', task='mqar', test=scored.of(
    [[int(i == j) for j in range(64)] for i in range(64)]), val=None)]


@pytest.fixture
def no_charts(monkeypatch):
  for name in ('dots', 'cloud'):
    monkeypatch.setattr(charts, name, lambda *_, name=name, **__: name.encode())


def write(place, command=lambda run, seeds: f'python {run.model} {seeds}'):
  """Writes the HTML pages of a place and returns {name: text}."""
  folder = place.folder / 'html'
  place.write(html=folder, command=command)
  return {path.name: path.read_text('utf-8') for path in folder.glob('*.html')}


def columns(table):
  """Returns the columns of a table, in any order."""
  head, rows = table
  return frozenset(
      (name, *(row[i] for row in rows)) for i, name in enumerate(head))


def test_tables_are_those_of_the_markdown_pages(tmp_path):
  """HTML tables also have the columns that filters ask for."""
  place = Place(tmp_path, [*RUNS, *MORE, arena()], (
      FLOORS, {**FLOORS, 'task': 'listops'}))
  pages = [Page(text) for text in write(place).values()]
  left = [table for page in pages for table in map(columns, page.cells())]
  theirs = [Page(markdown_it.MarkdownIt('commonmark').enable('table').render(
      path.read_text('utf-8'))) for path in (
          place.page, *place.details.glob('*.md'))
            if path.name != 'mechanisms.md']  # only Markdown has these pages
  # Records have their own tables in Markdown, but belong to rows in HTML.
  tables = {columns(table) for page in theirs
            for table in page.cells() if 'command' not in table[0]}
  for table in tables:
    mine = next(found for found in left if table <= found)
    left.remove(mine)
    assert {name for name, *_ in mine - table} <= {
        'family', 'state size', 'core-minutes'}
  assert not left and len(tables) > 12


def test_figures_are_files_beside_the_pages(tmp_path):
  place = Place(tmp_path, [*RUNS, *MORE])
  pages = [Page(text) for text in write(place).values()]
  addresses = [name for page in pages for name in page.figures]
  assert sorted(addresses) == sorted(
      f'figures/{path.name}' for path in (tmp_path / 'html/figures').iterdir())
  assert len(addresses) > 1
  for name in addresses:
    assert (tmp_path / 'html' / name).read_bytes() == (
        tmp_path / name).read_bytes()
  lazy = [item for page in pages for item in page.attributes
          if item[:2] == ('img', 'loading')]
  assert lazy == [('img', 'loading', 'lazy')] * len(addresses)


def test_filters_come_before_all_tables(tmp_path):
  pages = write(Place(tmp_path, [*RUNS, *MORE]))
  assert set(pages) == {'index.html', 'text_mini.html', 'mqar.html'}
  for text in pages.values():
    assert 0 < text.index('<form id="filters"') < text.index('<table')


def arena():
  """Returns a record of the laptop arena, whose settings were searched."""
  made = make('simpletron', task='mqar', test=MORE[0]['test'], val=None,
              state_size=77,
              device='cpu (2 cores)', protocol='laptop_1')
  made['config'] |= {'protocol': 'laptop_1'}
  low, *rest = suite.suite().grid
  made['config']['train']['learning_rate'] = low
  return made | {'search': {
      'tried': 1 + len(rest), 'grid': {suite.SEARCHED: [low, *rest]},
      'chosen_by': 'validation accuracy', 'seed': 0, 'steps': 9, 'seconds': 30,
      'scores': [[{suite.SEARCHED: low}, 0.7], *(
          [{suite.SEARCHED: one}, 0.6] for one in rest)]}}


def test_the_arena_is_first(tmp_path):
  page = Page(write(Place(tmp_path, [*RUNS, arena()]))['index.html'])
  head, rows = page.tables[0]
  assert head[:2] == ['mechanism', 'recall']
  assert [cells[0] for cells, _ in rows] == ['baseline', 'simpletron']
  # Two cores: 160 + 4.5 + 8.25 seconds, and a third of 30 of the search.
  wanted = {'family': 'linear', 'state': '77', 'cost': '6.1'}
  (_, none), (cells, about) = rows
  assert not [name for name in none if name.startswith('data-')]
  assert about == {'data-model': 'simpletron'} | {
      f'data-{name}': value for name, value in wanted.items()}
  shown = dict(zip(head, cells, strict=True))
  assert [shown[name] for name in ('family', 'state size')] == ['linear', '77']
  other = Page(write(Place(tmp_path / 'b', RUNS))['index.html'])
  assert other.tables[0][0][0] == 'model'


def test_each_record_is_there_once_with_its_command(tmp_path):
  place = Place(tmp_path, [*RUNS, *MORE])
  pages = [Page(text) for text in write(place).values()]
  files = sorted(name for page in pages for name in page.files)
  assert files == sorted(
      f'runs/{path.relative_to(place.runs).as_posix()}'
      for path in place.runs.rglob('*.json'))
  assert sorted(text for page in pages for text in page.commands) == sorted([
      'python transformer [0, 1]', 'python transformer [0]',
      'python simpletron [0, 1]', 'python linear_transformer [0]',
      'python simpletron [0]'])
  links = {value for page in pages for tag, name, value in page.attributes
           if name == 'href' and not value.startswith(('https:', '#'))}
  assert links == {f'../{name}' for name in files} | {
      'index.html', 'index.html#reading', 'text_mini.html', 'mqar.html'}


def spoilt():
  run = copy.deepcopy(RUNS[0])
  run |= {field: EVIL for field in (
      'device', 'dtype', 'kernel', 'git_commit', 'data_fingerprint',
      'data_origin')}
  run |= {'floors': {EVIL: 0.5}, 'changes': {EVIL: EVIL},
          'model': 'unheard_of'}
  run['config'] |= {EVIL: EVIL, 'encoder': {'pooling': EVIL, 'head': EVIL},
                    'model': {'name': 'unheard_of'}}
  return run


def test_what_records_say_is_text(tmp_path):
  floors = {**FLOORS, 'fingerprint': EVIL, 'origin': EVIL,
            'floors': {EVIL: {'accuracy': 0.5, 'how': EVIL}}}
  place = Place(tmp_path, [*RUNS, spoilt()], (floors,))
  place.put({EVIL: EVIL}, f'{EVIL.replace("/", "|")}.json')
  pages = write(place, command=lambda run, seeds: EVIL)
  plain = write(Place(tmp_path / 'plain', RUNS))
  said, known = '', {
      (tag, name) for text in plain.values()
      for tag, name, _ in Page(text).attributes}
  known |= {('details', 'class')}  # the list of left-out records
  for file, text in pages.items():
    page = Page(text)
    said += ''.join(page.text)
    assert page.scripts == Page(plain[file]).scripts and len(page.scripts) == 2
    for tag, name, value in page.attributes:
      assert (tag, name) in known
      assert name != 'href' or re.match(
          r'https://arxiv\.org/abs/|\.\./runs/|\w*(\.html)?(#\w+)?$', value)
      assert name != 'src' or re.fullmatch(r'figures/\w+\.svg', value)
    assert not re.search(r'url\(|@import|http-equiv', text)
  assert said.count(EVIL) > 10
  assert f'runs/{EVIL.replace("/", "|")}.json' in said


def test_rows_say_what_filters_ask_for(tmp_path):
  pages = write(Place(tmp_path, [
      *(run | {'state_size': 4160, 'device': 'cpu (2 cores)'} for run in RUNS),
      spoilt()]))
  index, task = (Page(pages[name]) for name in (
      'index.html', 'text_mini.html'))
  about = [attributes for page in (index, task) for _, rows in page.tables
           for _, attributes in rows]
  wanted = {'data-model': 'transformer', 'data-family': 'dense',
            'data-state': '4160', 'data-cost': '5.8'}
  assert about.count(wanted) >= 3  # a summary, scores and details
  assert {'data-model': 'Mega', 'data-family': 'other'} in about
  assert {'data-model': 'Transformer', 'data-family': 'dense'} in about
  for page in (index, task):
    assert {value for tag, name, value in page.attributes
            if (tag, name) == ('option', 'value')} == {
                '', 'linear', 'dense', 'other'}


def test_without_a_record_there_still_is_a_page(tmp_path):
  pages = write(Place(tmp_path, floors=()))
  page = Page(pages.pop('index.html'))
  assert not page.files and 'No run yet.' in page.text and not pages


def test_pages_of_tasks_without_records_go(tmp_path):
  place = Place(tmp_path, [*RUNS, *MORE])
  assert 'mqar.html' in write(place)
  (tmp_path / 'html' / 'mine.html').touch()
  (place.runs / 'mqar').rename(tmp_path / 'elsewhere')
  assert set(write(place)) == {'index.html', 'text_mini.html', 'mine.html'}


def test_on_the_command_line(tmp_path):
  place = Place(tmp_path, RUNS[:1])
  where = [f'--results_dir={tmp_path}', f'--page={place.page}']
  for wrong in (['--html=site'], ['board', '--html=']):
    commands.assert_one_sentence(
        commands.run('run_lra', *wrong, *where, cwd=tmp_path), '--html')
  assert not (tmp_path / 'site').exists() and not place.page.exists()
  done = commands.run(
      'run_lra', 'board', '--html=site', *where, cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  page = Page((tmp_path / 'site' / 'text_mini.html').read_text('utf-8'))
  # The record's config lacks most fields; the command sets those that it has.
  command, = page.commands
  assert command.startswith(
      'python run_lra.py --config=configs/transformer.py:text_mini,'
      'protocol=simpletron --config.')
  assert '--config.train.steps=2000' in command
  assert json.dumps(RUNS[0]['config']['data_dir'])[1:-1] not in command
