"""Tests that the HTML page has the Markdown page's tables and escapes text."""

import copy
import json
import re

import markdown_it
import pytest

from lra.board import charts
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
  """Writes the HTML page of a place and returns its text."""
  place.write(html=place.folder / 'html', command=command)
  assert [p.name for p in (place.folder / 'html').iterdir()] == ['index.html']
  return (place.folder / 'html' / 'index.html').read_text('utf-8')


def test_tables_are_those_of_the_markdown_page(tmp_path):
  place = Place(tmp_path, [*RUNS, *MORE], (
      FLOORS, {**FLOORS, 'task': 'listops'}))
  ours = Page(write(place))
  theirs = [Page(markdown_it.MarkdownIt('commonmark').enable('table').render(
      path.read_text('utf-8'))) for path in (
          place.page, *place.details.glob('*.md'))
            if path.name != 'mechanisms.md']  # only Markdown has these pages
  # Records have their own tables in Markdown, but belong to rows in HTML.
  tables = [table for page in theirs for table in page.cells()
            if 'command' not in table[0]]
  assert sorted(ours.cells()) == sorted(tables) and len(tables) > 8
  assert len(ours.figures) == sum(len(page.figures) for page in theirs) > 1


def test_each_record_is_there_once_with_its_command(tmp_path):
  place = Place(tmp_path, [*RUNS, *MORE])
  page = Page(write(place))
  assert sorted(page.files) == sorted(
      f'runs/{path.relative_to(place.runs).as_posix()}'
      for path in place.runs.rglob('*.json'))
  assert sorted(page.commands) == sorted([
      'python transformer [0, 1]', 'python transformer [0]',
      'python simpletron [0, 1]', 'python linear_transformer [0]',
      'python simpletron [0]'])
  links = [value for tag, name, value in page.attributes if name == 'href'
           and not value.startswith('https:')]
  assert sorted(links) == [f'../{name}' for name in sorted(page.files)]


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
  text = write(place, command=lambda run, seeds: EVIL)
  page, plain = Page(text), Page(write(Place(tmp_path / 'plain', RUNS)))
  assert ''.join(page.text).count(EVIL) > 10
  assert f'runs/{EVIL.replace("/", "|")}.json' in ''.join(page.text)
  assert page.scripts == plain.scripts and len(page.scripts) == 2
  known = {(tag, name) for tag, name, _ in plain.attributes}
  known |= {('details', 'class')}  # the list of left-out records
  for tag, name, value in page.attributes:
    assert (tag, name) in known
    assert name != 'href' or value.startswith(
        ('https://arxiv.org/abs/', '../runs/'))
    assert name != 'src' or value.startswith('data:image/svg+xml;base64,')
  assert not re.search(r'url\(|@import|http-equiv', text)


def test_rows_say_what_filters_ask_for(tmp_path):
  page = Page(write(Place(tmp_path, [*RUNS, spoilt()])))
  about = [attributes for _, rows in page.tables for _, attributes in rows]
  wanted = {'data-task': 'text_mini', 'data-model': 'simpletron',
            'data-family': 'linear', 'data-protocol': 'simpletron'}
  assert wanted in about
  assert {**wanted, 'data-model': 'unheard_of', 'data-family': 'other'} in about
  assert {'data-model': 'Mega', 'data-protocol': 'mega',
          'data-family': 'other'} in about
  assert {'data-model': 'Transformer', 'data-protocol': 'lra',
          'data-family': 'dense'} in about
  choices = {value for tag, name, value in page.attributes
             if (tag, name) == ('option', 'value')}
  assert {'text_mini', 'linear', 'dense', 'other', 'simpletron'} <= choices


def test_without_a_record_there_still_is_a_page(tmp_path):
  page = Page(write(Place(tmp_path, floors=())))
  assert not page.files and 'No run yet.' in page.text


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
  page = Page((tmp_path / 'site' / 'index.html').read_text('utf-8'))
  # The record's config lacks most fields; the command sets those that it has.
  command, = page.commands
  assert command.startswith(
      'python run_lra.py --config=configs/transformer.py:text_mini,'
      'protocol=simpletron --config.')
  assert '--config.train.steps=2000' in command
  assert json.dumps(RUNS[0]['config']['data_dir'])[1:-1] not in command
