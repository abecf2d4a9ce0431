"""Tests the HTML leaderboard in Chromium: use, looks, accessibility.

The tests need `pip install -e '.[browser]'` and an installed Chromium.
"""

import re
import shutil

import markdown_it
import pytest

from lra.board import publish
from lra.board.site import Place
from lra.core import paths

pytestmark = pytest.mark.full
PATIENCE = 300_000  # milliseconds
# Gives a page the width and font size of GitHub's.
GITHUB = """
body { font: 16px/1.5 sans-serif; width: 1012px; margin: 0; }
table { display: block; width: max-content; max-width: 100%; overflow: auto;
        border-collapse: collapse; }
td, th { padding: 6px 13px; border: 1px solid #ccc; }
code { font-size: 85%; }
"""


@pytest.fixture(scope='module')
def chromium():
  driver = pytest.importorskip(
      'playwright.sync_api', reason='no browser driver: pip install playwright')
  path = shutil.which('chromium') or shutil.which('google-chrome')
  if path is None:
    pytest.skip('no Chromium: apt-get install chromium')
  with driver.sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=path, args=['--no-sandbox'], timeout=PATIENCE)
    yield browser
    browser.close()


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """Writes the committed leaderboard to a new folder, which it returns."""
  folder = tmp_path_factory.mktemp('site')
  shutil.copytree(paths.PACKAGED, folder, dirs_exist_ok=True)
  publish.write(Place(folder, folder / 'page.md', lambda run, seeds: (
      f'python run_lra.py --config={run.model}')), folder)
  return folder


@pytest.fixture
def page(chromium, site):
  """Returns a function that opens the page in a new browser window.

  At the end it asserts that the console has no error or warning, that every
  file was there, and that none came from elsewhere.
  """
  opened = []
  def visit(width=1012, scheme='light', script=True,
            name='listops_mini.html'):
    context = chromium.new_context(
        viewport={'width': width, 'height': 900}, color_scheme=scheme,
        java_script_enabled=script, offline=True)
    context.set_default_timeout(PATIENCE)
    shown = context.new_page()
    wrong = []
    shown.on('pageerror', lambda error: wrong.append(str(error)))
    shown.on('console', lambda said: wrong.append(said.text)
             if said.type in ('error', 'warning') else None)
    shown.on('requestfailed', lambda request: wrong.append(request.url))
    shown.on('request', lambda request: wrong.append(request.url)
             if not request.url.startswith('file:') else None)
    shown.goto((site / name).as_uri())
    opened.append((context, wrong))
    return shown
  yield visit
  for context, wrong in opened:
    context.close()
    assert not wrong


TABLE = 'ListOps mini: protocol simpletron'
OVERVIEW = 'Protocol simpletron: accuracy, %'


def column(shown, name, label=TABLE):
  """Returns the texts of a column's visible cells, without pinned rows."""
  return shown.evaluate("""([label, name]) => {
    const box = document.querySelector(`[aria-label="${label}"]`);
    const place = [...box.querySelectorAll('th')].findIndex(
        (th) => th.textContent === name);
    return [...box.querySelectorAll('tbody')].filter((body) =>
        body.offsetHeight && !body.className.includes('pinned')).map(
            (body) => body.rows[0].cells[place].textContent);
  }""", [label, name])


def heading(shown, name, label=TABLE):
  return shown.locator(f'[aria-label="{label}"] th', has_text=name).first


def test_a_heading_sorts_numbers_texts_and_nothing_last(page):
  shown = page()
  numbers = sorted((int(x.replace(',', '')) for x in column(
      shown, 'parameters')), reverse=True)
  assert len(numbers) > 20 and {len(str(n)) for n in numbers} == {5, 6}
  for order in ('descending', 'ascending'):
    heading(shown, 'parameters').locator('button').click()
    assert heading(shown, 'parameters').get_attribute('aria-sort') == order
    assert heading(shown, 'accuracy').get_attribute('aria-sort') == 'none'
    assert [int(x.replace(',', '')) for x in column(shown, 'parameters')] == (
        numbers)
    numbers.reverse()
  assert shown.locator('#status').inner_text().startswith(
      'sorted by parameters, ascending')
  heading(shown, 'model').locator('button').focus()
  shown.keyboard.press('Enter')
  rows = column(shown, 'model')
  models = [row.split()[0] for row in rows]  # without its settings
  assert models == sorted(models) and len(set(models)) > 20
  shown.keyboard.press('Space')
  assert column(shown, 'model') == rows[::-1]
  shown = page(name='parity.html')
  signed = 'above baseline', 'Parity: protocol probes'
  heading(shown, *signed).locator('button').click()
  points = [float(x.split()[0]) for x in column(shown, *signed)]
  assert points == sorted(points, reverse=True) and points[-1] < 0 < points[0]
  shown = page(name='index.html')
  for _ in range(2):
    heading(shown, 'ListOps mini', OVERVIEW).locator('button').click()
    values = column(shown, 'ListOps mini', OVERVIEW)
    known = [float(value.split()[0]) for value in values if value != '–']
    assert values[len(known):] == ['–'] * (len(values) - len(known)) != []
    assert known in (sorted(known), sorted(known)[::-1])
    first = shown.locator(f'[aria-label="{OVERVIEW}"] tbody').first
    assert 'baseline' in first.inner_text()


def seen(shown):
  """Returns the `data-` attributes of each visible row of scores."""
  return shown.evaluate("""() =>
      [...document.querySelectorAll('.counted tbody')].filter(
          (body) => body.offsetHeight && body.dataset.model).map(
              (body) => ({...body.dataset}))""")


def test_filters_and_search(page):
  shown = page()
  everything = seen(shown)
  assert f'{len(everything)} rows' == shown.locator('#status').inner_text()
  for name, value, wanted in (
      ('family', 'kernel', lambda row: row['family'] == 'kernel'),
      ('state', '4000', lambda row: int(row['state']) <= 4000),
      ('cost', '2.5', lambda row: float(row['cost']) <= 2.5),
      ('model', 'ERATIVE_', lambda row: 'erative_' in row['model'])):
    field = shown.locator(f'[name={name}]')
    (field.select_option if name == 'family' else field.fill)(value)
    rows = seen(shown)
    assert rows == [row for row in everything if wanted(row)]
    assert 0 < len(rows) < len(everything) / 1.5
    assert shown.locator('#status').inner_text() == (
        f'{len(rows)} of {len(everything)} rows')
    shown.click('[type=reset]')
    assert seen(shown) == everything
  # Filters combine, and a table or section without a row is not shown.
  shown.select_option('[name=family]', 'kernel')
  shown.fill('[name=model]', 'rfa')
  assert {row['model'] for row in seen(shown)} == {'rfa'}
  shown.fill('[name=model]', 'nobody at all')
  assert not seen(shown)
  assert not shown.locator('h2', has_text='Protocol').first.is_visible()


def test_other_pages_open_with_the_same_filters(page):
  shown = page(name='index.html')
  shown.select_option('[name=family]', 'linear')
  shown.fill('[name=cost]', '3')
  shown.locator('a', has_text='ListOps mini').first.click()
  shown.wait_for_load_state()
  assert shown.url.endswith('/listops_mini.html#family=linear&cost=3')
  rows = seen(shown)
  assert {row['family'] for row in rows} == {'linear'}
  assert max(float(row['cost']) for row in rows) <= 3
  shown.reload()
  assert seen(shown) == rows
  shown.click('[type=reset]')
  shown.locator('nav a').first.click()
  shown.wait_for_load_state()
  assert shown.locator('[name=family]').input_value() == ''


def test_family_cost_and_state_can_be_sorted_by(page):
  for name in ('index.html', 'listops_mini.html'):
    shown = page(name=name)
    label = OVERVIEW if name == 'index.html' else TABLE
    for column_name in ('core-minutes', 'state size', 'family'):
      heading(shown, column_name, label).locator('button').click()
      texts = [text for text in column(shown, column_name, label)
               if text != '–']
      if column_name != 'family':
        texts = [-float(text.split()[0].replace(',', '')) for text in texts]
      assert texts == sorted(texts) and len(set(texts)) > 4


def test_filters_are_above_the_first_table(page):
  """On a screen of 900 pixels both can be seen."""
  shown = page(1280, name='index.html')
  places = [shown.locator(name).first.bounding_box()['y']
            for name in ('#filters', 'thead')]
  assert places == sorted(places) and places[1] < 800


@pytest.mark.parametrize('width', [390, 1280])
def test_the_first_column_stays(page, width):
  shown = page(width, name='index.html')
  box = shown.locator('[aria-label="Mini tasks and probes: accuracy, %"]')
  cell = box.locator('tbody td').first
  other = box.locator('tbody td').nth(1)
  before, moved = cell.bounding_box(), other.bounding_box()['x']
  box.evaluate('(box) => { box.scrollLeft = 300; }')
  assert other.bounding_box()['x'] == moved - 300
  assert cell.bounding_box()['x'] == before['x']
  assert before['width'] < width / 2
  assert cell.evaluate('(cell) => getComputedStyle(cell).backgroundColor') != (
      'rgba(0, 0, 0, 0)')


@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('name', ['index.html', 'listops_mini.html'])
def test_axe_finds_nothing(page, name, scheme):
  axe = pytest.importorskip(
      'axe_playwright_python.sync_playwright',
      reason='no axe: pip install axe-playwright-python')
  shown = page(390, scheme, name=name)
  shown.evaluate(
      "document.querySelectorAll('details').forEach((d) => { d.open = true; })")
  found = axe.Axe().run(shown)
  assert not found.violations_count, found.generate_report()


def test_a_row_shows_its_record(page):
  shown = page()
  row = shown.locator('.counted tbody', has_text='sinkhorn').first
  button = row.locator('button.more')
  assert button.get_attribute('aria-expanded') == 'false'
  commands = row.locator('pre')
  assert commands.count() == row.locator('pre:has-text("sinkhorn")').count() > 0
  assert not commands.first.is_visible()
  button.click()
  assert button.get_attribute('aria-expanded') == 'true'
  assert commands.first.inner_text() == 'python run_lra.py --config=sinkhorn'
  assert re.search(r'runs/\w+/sinkhorn-\w{8}-s0\.json', row.inner_text())
  heading(shown, 'model').locator('button').click()
  assert commands.first.is_visible()
  # Without scripts everything is shown.
  shown = page(script=False)
  assert shown.locator('pre').first.is_visible()
  assert not shown.locator('#filters').is_visible()


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_themes(page, scheme):
  shown = page(scheme=scheme)

  def is_dark():
    colour = shown.evaluate('getComputedStyle(document.body).backgroundColor')
    return sum(map(int, re.findall(r'\d+', colour)[:3])) < 180
  assert is_dark() == (scheme == 'dark')
  for now in (scheme == 'light', scheme == 'dark'):
    shown.click('#theme')
    assert is_dark() == now
    assert shown.locator('#theme').get_attribute('aria-pressed') == (
        str(now).lower())
  shown.click('#theme')
  shown.reload()
  assert is_dark() == (scheme == 'light')


@pytest.mark.parametrize('width', [390, 1012])
def test_the_page_is_never_wider_than_the_window(page, site, width):
  for name in ('index.html', 'listops_mini.html', 'parity.html'):
    shown = page(width, name=name)
    shown.evaluate("""() => {
      document.querySelectorAll('button.more').forEach((b) => b.click());
      document.querySelectorAll('details').forEach((d) => { d.open = true; });
    }""")
    assert shown.evaluate('document.documentElement.scrollWidth') <= width
  # The tables of the Markdown page fit in a page of GitHub.
  body = markdown_it.MarkdownIt('commonmark').enable('table').render(
      (site / 'page.md').read_text('utf-8'))
  (site / 'page.html').write_text(
      f'<meta charset="utf-8"><style>{GITHUB}</style>{body}')
  assert page(name='page.html').evaluate(
      """() => [...document.querySelectorAll('table')]
      .filter((table) => table.scrollWidth > table.clientWidth)
      .map((table) => table.rows[0].innerText)""") == []
