"""Makes invented result records, and pages from a folder of them."""

import html.parser
import json
import re

from lra.board import inputs, publish, render, site
from tests.helpers import scored

HEADER = ','.join(inputs.COLUMNS)
_VOID = ('meta', 'img', 'input', 'br', 'hr')


def scores(right, wrong, **changes):
  """Returns test scores of a two-class task: `right` + `wrong` examples."""
  return scored.of([[right, wrong], [0, 0]], **changes)


def unlinked(text):
  """Returns the text of pages without the links to pages of mechanisms."""
  return re.sub(r'\[([^\]]*)\]\((?:\w+/)*mechanisms/\w+\.md\)', r'\1', text)


def loss(seed):
  """Returns a loss that differs by seed, since equal scores count as copies."""
  return 0.5 + 1e-9 * seed


def make(model='transformer', seed=0, right=130, params=1000, status='ok',
         task='text_mini', steps=2000, **changes):
  """Returns a valid result record with 200 test examples."""
  ok = status == 'ok'
  config = {
      'seed': seed, 'task': task, 'protocol': 'simpletron',
      'data_dir': f'/data/{model}{seed}',
      'train': {'steps': steps, 'select': 'best'},
      'encoder': {'pooling': 'cls', 'head': 'concat', 'num_layers': 2,
                  'width': 64, 'mlp_width': 128},
      'model': {'name': model}}
  record = {
      'status': status, 'task': task, 'model': model,
      'protocol': 'simpletron', 'seed': seed, 'steps': steps,
      'best_step': min(1500, steps) if ok else None,
      'val': scores(120, 80) if ok else None,
      'test': scores(right, 200 - right, loss=loss(seed)) if ok else None,
      'floors': {'majority': 0.5}, 'num_params': params, 'mixer_params': 300,
      'steps_per_s': 12.34, 'tokens_per_s': 4000.0,
      'peak_memory_bytes': 3 * 2**29, 'train_seconds': 160.0,
      'eval_seconds': 4.5, 'compile_seconds': 8.25, 'device': 'CPU',
      'dtype': 'float32', 'kernel': 'xla', 'git_commit': 'c0ffee1234',
      'git_dirty': False, 'data_fingerprint': 'feed00000000', 'config': config}
  return {**record, **changes}


RUNS = [
    make(seed=0, right=130), make(seed=1, right=131),
    make(seed=0, right=110, steps=100),
    make('simpletron', right=140, params=1101, device='GPU', kernel='pallas'),
    make('simpletron', seed=1, status='diverged', params=1101, device='GPU',
         kernel='pallas', steps_per_s=None, peak_memory_bytes=None),
    make('linear_transformer', status='oom', params=1100, kernel=None,
         steps=0, steps_per_s=None, peak_memory_bytes=None),
]
for _run in RUNS:
  # The config of a run that ends early keeps the requested steps.
  if _run['status'] != 'ok':
    _run['config']['train']['steps'] = 2000
FLOORS = {
    'task': 'text_mini', 'fingerprint': 'feed00000000', 'floors': {
        'n-grams': {'accuracy': 0.68, 'how': 'logistic regression'},
        'majority': {'accuracy': 0.5, 'how': 'the commonest label'}}}
SPEEDS = {'device': 'CPU', 'shapes': [[4, 4000]], 'models': {
    model: {'seconds': [seconds], 'bytes': [2**30]} for model, seconds in {
        'transformer': 4.0, 'simpletron': 1.0, 'local': 2.0,
        'performer': 3.0}.items()}}


class Place:
  """A folder with records, from which pages can be made.

  By default, the baselines of the package are not used.
  """

  def __init__(self, folder, runs=(), floors=(FLOORS,)):
    self.folder = folder
    self.runs, self.baselines = folder / 'runs', folder / 'floors'
    self.csv = folder / 'published.csv'
    self.speeds = folder / 'speed.json'
    self.page = folder / 'leaderboard.md'
    self.figures = folder / 'figures'
    for i, run in enumerate(runs):
      self.put(run, f'{run["task"]}/run{i}.json')
    self.baselines.mkdir(parents=True)
    self.speeds.write_text(json.dumps(SPEEDS))
    for record in floors:
      (self.baselines / f'{record["task"]}.json').write_text(json.dumps(record))
    self.csv.write_text(
        f'{HEADER}\nMega,63.14,90.4,91.25,,,FAIL,,mega,Table 1,2209.10655,'
        'primary,\nTransformer,36.37,64.27,57.46,,,,,lra,README,2011.04006,'
        'primary,transformer\n')

  def put(self, run, name):
    path = self.runs / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run))
    return path

  def place(self, command=None, usual=None):
    return site.Place(self.folder, self.page, command, usual)

  def render(self, command=None, usual=None):
    """Returns the first page, then the task pages, as one text without links
    to mechanisms.
    """
    place = self.place(command, usual)
    return unlinked('\n'.join(text for path, text in render.markdown(
        site.load(place)).items() if path.parent != place.pages))

  @property
  def details(self):
    return self.place().details

  def write(self, html=None, command=None):
    publish.write(self.place(command), html)


class Page(html.parser.HTMLParser):
  """Parses a page as a browser does.

  Attributes:
    tags: the names of its tags.
    tables: (heading cells, rows); a row is (cells, attributes).
    figures: addresses of the images.
    files: file names of the records.
    commands: commands that make the records again.
  """

  def __init__(self, text):
    super().__init__()
    self.open, self.tags, self.tables, self.figures = [], set(), [], []
    self.files, self.commands, self.scripts = [], [], []
    self.attributes, self.text = [], []
    self._cell = self._body = None
    self.feed(text)
    self.close()
    assert not self.open

  def handle_starttag(self, tag, attributes):
    attributes = dict(attributes)
    self.tags.add(tag)
    self.attributes += [(tag, *item) for item in attributes.items()]
    if tag not in _VOID:
      self.open.append((tag, attributes))
    if tag == 'img':
      self.figures.append(attributes['src'])
    if tag == 'pre':
      self.commands.append('')
    if tag == 'table':
      self.tables.append(([], []))
    if tag == 'tbody':
      self._body = attributes
    if tag == 'tr' and 'tbody' in dict(self.open) and (
        attributes.get('class') != 'records'):
      self.tables[-1][1].append(([], self._body))
    if tag in ('th', 'td') and 'colspan' not in attributes:
      self._cell = []

  def handle_startendtag(self, tag, attributes):
    self.handle_starttag(tag, attributes)

  def handle_endtag(self, tag):
    assert self.open.pop()[0] == tag
    if tag in ('th', 'td') and self._cell is not None:
      cells = (self.tables[-1][0] if tag == 'th'
               else self.tables[-1][1][-1][0])
      cells.append(' '.join(''.join(self._cell).split()))
      self._cell = None

  def handle_data(self, data):
    tag, attributes = self.open[-1] if self.open else ('', {})
    if tag not in ('script', 'style'):
      self.text.append(data)
    if tag == 'script':
      self.scripts.append(data)
    if self._cell is not None:
      self._cell.append(data)
    if tag == 'code' and attributes.get('class') == 'file':
      self.files.append(data)
    if 'pre' in dict(self.open):
      self.commands[-1] += data

  def cells(self):
    """Returns (heading, rows) of each table, as texts of the cells."""
    return [(head, [cells for cells, _ in rows])
            for head, rows in self.tables]
