"""Tests that hostile text in records cannot break the pages or figures."""

import copy
import json
import os
import pathlib
import re
import xml.etree.ElementTree as ET

import markdown_it
import pytest

from lra.board import publish, render, site
from lra.cli import repeat
from lra.core import paths
from lra.core.errors import UserError
from lra.schema import result
from tests.helpers import page as page_helper

_DATA = pathlib.Path(__file__).parent / 'data'
FLOORS = json.loads((_DATA / 'floors.json').read_text())
RUN = json.loads((_DATA / 'result.json').read_text())
RUN |= {'model_sha256': '0' * 64, 'config_sha256': 'f' * 64,
        'changes': {'train.steps': 4000}, 'later': 'field', 'num_devices': 2,
        'xla_flags': ['--a=1']}
RUN['config'] |= {'encoder': {'pooling': 'cls', 'head': 'concat'}}
RUN['config']['train']['select'] = 'best'

TEXTS = {
    'script': '<script>alert(1)</script>',
    'image': '<img src=x onerror=alert(1)>',
    'details': '</details></summary><h1>',
    'comment': '<!-- <![CDATA[ ]]> --> <?php',
    'entity': '&lt;script&gt;alert(1)&#60;/script&#62;',
    'link': '[click](javascript:alert(1)) ![x](https://evil.example/x.png)',
    'reference': '[x]: javascript:alert(1)\n\n[x] [x][x] [^1]',
    'address': 'https://evil.example www.evil.example <https://evil.example>',
    'code': '`` ` ``` <b>',
    'marks': '**a** __b__ ~~c~~ _d_ *e* \\*f\\* # g',
    'cells': 'a|b\\|c\\\\|d',
    'lines': 'a\n\n# heading\n\n```\n* item\r\n| x | y |\u2028---\x85z',
    'controls': '\x00\x01\x08\x1b[31m\x7f\x9b\u202egnp.exe\ufeff\ufffe\uffff',
    'math': r'$\frac$ $x_1^{$ \$ $$',
    'path': '../../../../../../evil',
    'surrogate': 'a\ud800b\udfff',
    'long': 'x' * 900,
    'marked': '_hidden',
}
VALUES = {
    'huge': 10**400, 'many': 10**18, 'large': 1e300, 'small': 5e-324,
    'inf': 1e999, 'negative': -1, 'true': True, 'null': None, 'list': [[]],
    'object': {'a': {}}, 'deep': json.loads('[' * 200 + ']' * 200),
    'blank': ' \t\u200b', 'megabyte': 'x' * 2**20}


def leaves(value, path=()):
  """Yields (path, is_name) for each value and each field name of a record."""
  yield path, False
  items = (value.items() if isinstance(value, dict)
           else enumerate(value) if isinstance(value, list) else ())
  for key, inner in items:
    yield from leaves(inner, (*path, key))
    if isinstance(value, dict):
      yield (*path, key), True


def spoilt(record, path, is_name, value):
  """Returns a copy with `value` for the value at `path`, or for its name."""
  if not path:
    return value
  changed = copy.deepcopy(record)
  place = changed
  for key in path[:-1]:
    place = place[key]
  if is_name:
    place[str(value)] = place.pop(path[-1])
  else:
    place[path[-1]] = value
  return changed


class Page(page_helper.Page):
  """A page of Markdown, as a browser sees it."""

  def __init__(self, text):
    parser = markdown_it.MarkdownIt('commonmark').enable(
        ['table', 'strikethrough'])
    parser.validateLink = lambda address: True  # else it hides bad links
    super().__init__(parser.render(text))

  def handle_comment(self, data):
    raise AssertionError(data)

  handle_decl = handle_pi = unknown_decl = handle_comment

  def check(self):
    """Asserts that the page has only the tags and links of a leaderboard."""
    assert self.tags <= {
        'h1', 'h2', 'h3', 'p', 'table', 'thead', 'tbody', 'tr', 'th', 'td',
        'code', 'pre', 'em', 'strong', 'a', 'img', 'details', 'summary', 'ul',
        'li'}, self.tags
    for _, name, value in self.attributes:
      assert name in ('href', 'src', 'alt', 'style'), name
      if name == 'href':
        assert re.match(r'https://arxiv\.org/abs/\d+\.\d+$|'
                        r'(\.\./)*(lra/results/)?runs/[\w/.-]+\.json$|'
                        r'(docs/)?\w+/(results|runs)\.csv$|'
                        r'(\.\./)*(docs/)?[\w/]+\.md$', value)
      if name == 'src':
        assert re.match(
            r'(\.\./)*(lra/results/)?figures/\w+\.svg$', value)


class Place(page_helper.Place):
  """A leaderboard of three valid records, to which tests add hostile ones."""

  def __init__(self, folder):
    super().__init__(folder / 'results', floors=[FLOORS])
    self.csv.unlink()
    self.speeds.unlink()
    self.page = self.folder / 'page.md'
    self.number = 0
    for model in ('transformer', 'local', 'linformer'):
      config = {**RUN['config'], 'model': {'name': model}}
      self.add({**RUN, 'model': model, 'config': config})

  def add(self, record):
    """Writes a record; seed 0 becomes an unused seed."""
    if isinstance(record, dict) and record.get('seed') == 0:
      record = copy.deepcopy(record) | {'seed': self.number}
      if isinstance(record.get('config'), dict):
        record['config']['seed'] = self.number
    self.put(record, f'{self.number}.json')
    self.number += 1

  def make(self):
    """Writes and checks pages and figures; returns their text and `Page`."""
    publish.regenerate(self.place(repeat.command))
    for path in self.figures.iterdir():
      assert path.name == 'text_mini_accuracy.svg'
      for element in ET.fromstring(path.read_bytes()).iter():
        tag = element.tag.split('}')[-1]
        assert tag not in ('script', 'image', 'foreignObject', 'a')
        assert not any(name.startswith('on') for name in element.attrib)
    assert [p.name for p in self.folder.parent.iterdir()] == ['results']
    return self.check(''.join(path.read_text('utf-8') for path in (
        self.page, *self.details.rglob('*.md'))))

  def check(self, text=None):
    """Checks the text of a page, by default of all; returns it and its `Page`.
    """
    text = ''.join(render.markdown(site.load(self.place(
        repeat.command))).values()) if text is None else text
    page = Page(text)
    page.check()
    assert any(cell.startswith('transformer') for cell in page.text)
    commands = re.compile(r'(`+) ?python run_lra.*?\1 \|$', re.MULTILINE)
    assert '://evil' not in commands.sub('', text)
    return text, page


@pytest.fixture
def place(tmp_path):
  return Place(tmp_path)


def _spoil_all(place, value):
  """Adds copies of RUN, each with `value` in place of another value or name."""
  for path, is_name in leaves(RUN):
    if 'confusion' not in path[:-1]:
      place.add(spoilt(RUN, path, is_name, value))


@pytest.mark.every(6)
@pytest.mark.parametrize(
    'value', [*TEXTS.values(), *VALUES.values()], ids=[*TEXTS, *VALUES])
def test_a_hostile_value_in_each_field_in_turn(place, value):
  _spoil_all(place, value)
  page, _ = place.check()
  assert place.number > 80 and 'records are left out' in page


DRAWN = ('script', 'controls', 'math', 'marked', 'long', 'lines')
FREE = ('device', 'dtype', 'kernel', 'git_commit', 'data_fingerprint')


@pytest.mark.every(4)
@pytest.mark.parametrize('name', sorted(set(TEXTS) - {'surrogate'}))
def test_hostile_text_in_all_free_fields_is_shown_as_it_is(place, name):
  text = TEXTS[name]
  run = copy.deepcopy(RUN) | {field: text for field in FREE}
  run |= {'later': text, text: text, 'floors': {text: 0.5},
          'changes': {text: text, 'train.steps': text}}
  run['config'] |= {text: text, 'encoder': {
      'pooling': text, 'head': text, text: {text: text}}}
  run['config']['model'] |= {'name': 'transformer', text: text}
  place.add(run)
  run['config'][text] = 'another'
  place.add(run)
  floors = copy.deepcopy(FLOORS)
  floors['fingerprint'] = text
  floors['floors'] = {text: {'accuracy': 0.5, 'how': text}}
  (place.baselines / 'text_mini.json').write_text(json.dumps(floors))
  page, shown = place.make() if name in DRAWN else place.check()
  assert 'left out' not in page
  if name in ('script', 'image', 'details', 'entity', 'link', 'cells', 'math',
              'marks', 'address', 'code', 'path'):
    assert ' '.join(text.split()) in ''.join(shown.text)


@pytest.mark.parametrize('name', [
    '../../../../x/evil', '/evil', 'a/b', 'a\\b', '..', '.', 'a.json',
    'Model', 'm\n', 'm ', 'ä', 'a' * 65, '', '%2e%2e', 'a\0b', '~', '$HOME'])
@pytest.mark.parametrize('field', ['model', 'protocol', 'task'])
def test_no_name_leads_out_of_the_folder(field, name):
  run = copy.deepcopy(RUN) | {field: name}
  if field == 'model':
    run['config']['model']['name'] = name
  else:
    run['config'][field] = name
  with pytest.raises(UserError, match=f"field '{field}'"):
    result.validate(run)


@pytest.mark.every(3)
@pytest.mark.parametrize('make, why', [
    (lambda path: path.mkdir(), 'a directory'),
    (os.mkfifo, 'regular file'),
    (lambda path: path.symlink_to('nowhere'), 'JSON object'),
    (lambda path: path.symlink_to('/dev/zero'), 'regular file'),
    (lambda path: path.symlink_to(path), 'damaged'),
    (lambda path: path.write_bytes(b'[' * 10**5), 'deep|damaged'),
    (lambda path: path.write_bytes(b' ' * 2**21), 'more than 1,048,576 bytes'),
    (lambda path: path.write_bytes(b'9' * 5000), 'damaged|JSON object'),
])
def test_what_is_no_file_of_json_is_left_out(place, make, why):
  make(place.runs / 'odd.json')
  page, _ = place.make()
  line, = (x for x in page.splitlines() if x.startswith('* `runs/odd.json`'))
  assert any(w in line for w in why.split('|')), line


def test_the_name_of_a_bad_file_is_text_too(place):
  for name in ('<script>x', '`a` [b](c)', 'new\nline', 'a' * 200):
    (place.runs / f'{name}.json').write_text('{}')
  (place.runs / b'\xff.json'.decode('utf-8', 'surrogateescape')).touch()
  page, shown = place.make()
  assert '5 records are left out' in page
  assert 'runs/<script>x.json' in shown.text


@pytest.mark.full
def test_the_committed_page_has_nothing_else_in_it():
  made = render.markdown(site.load(site.Place(
      paths.PACKAGED, paths.page(), repeat.command)))
  # The README has comments of its own, and its table is that of the page.
  page = Page('\n'.join(text for path, text in made.items()
                        if path.name != 'README.md'))
  page.check()
  assert {'table', 'a', 'img'} <= page.tags
