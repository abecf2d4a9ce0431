"""Tests the pages of the leaderboard, which depend on its records only."""

import copy
import os
import random
import re
import shutil
import subprocess
import sys

import pytest

from lra.board import (
  charts,
  kinds,
  mechanisms,
  render,
  site,
  suite_charts,
)
from lra.board import tables as tables_lib
from lra.cli import repeat
from lra.core import paths, tasks
from lra.core.errors import UserError
from lra.core.formats import NONE
from tests.helpers.page import (
  FLOORS,
  RUNS,
  Place,
  loss,
  make,
  scores,
  unlinked,
)
from tests.helpers.paths import ROOT

# These invented records name real protocols but do not have their settings.
pytestmark = pytest.mark.usefixtures('no_protocols')


# The tables were computed by hand. 130 and 131 of 200 examples give 65.25% +-
# 12.706 * 0.25%; 140 and 110 of 200 have Wilson's intervals. By Fisher's test
# of three pairs only 140 and 110 differ (p = 0.003); 140 and 130 (0.3) do not,
# nor do 130 and 110 (0.05). Only 110 differs from the baseline of 68% (p = 0.01
# is below 5% / 3). 1101 parameters are more than 10% above 1000, 1100 are not.
# With 512 channels in 8 heads and 513 positions the state sizes are
# 2 * 512 * 513, 8 * 64 * 64 and 8 * 64 * 65.
SCORES = """\
| rank | model | accuracy % | 95% interval | above baseline | seeds \
| parameters | state size | notes |
| --: | :-- | --: | --: | --: | --: | --: | --: | :-- |
| 1–2 | simpletron | 70.0 | 63.3 to 75.9 \\* | +2.0 n.s. | 1 of 2 \
| **1,101** | 32,768 | **seed 1 diverged at step 2,000; +10.1% parameters** |
| 1–3 | transformer (train.steps=2000) | 65.3 | 62.1 to 68.4 | -2.7 n.s. | 2 \
| 1,000 | 525,312 | – |
| 2–3 | transformer (train.steps=100) | 55.0 | 48.1 to 61.7 \\* | -13.0 | 1 \
| 1,000 | 525,312 | – |
| – | linear_transformer | – | – | – | 0 of 1 | 1,100 \
| 33,280 | **seed 0 ran out of memory** |
"""
BASELINES = """\
| baseline | accuracy % | how |
| :-- | --: | :-- |
| majority | 50.00 | the commonest label |
| n-grams | 68.00 | logistic regression |
"""
DETAIL = ('| transformer (train.steps=2000) | simpletron | 2 | 1–3 | dense '
          '| 65.5 | 0.35 | 60.0 | 0.5000 | 50.0 | 32.6 | 39.5 | 200 | not kept '
          '| cls | 1.00 | 300 | 2,000 | best | 1,500 | 160 | 4.50 | 8.25 '
          '| 1.50 | CPU | float32 | xla | c0ffee12 |')




def test_tables_are_those_written_by_hand(tmp_path):
  text = Place(tmp_path, RUNS).render()
  assert SCORES in text
  assert BASELINES in text
  assert DETAIL in text
  assert text.index(BASELINES) < text.index(SCORES)
  assert text.endswith('\n') and not text.endswith('\n\n')
  for line in text.splitlines():  # speed is in no table
    assert not (line.startswith('|') and 'steps/s' in line)


def _parts(share, depth, others=50):
  return dict(agreement={'first token': share}, parts={'depth': {
      '10': {'examples': 200 - others, 'accuracy': depth},
      **({'9': {'examples': others, 'accuracy': 0.5}} if others else {})}})


SEEDS = [
    make(best_step=2000, train_seconds=300.0, git_commit='ffff00001234'),
    make(seed=1, best_step=500, train_seconds=5.0, device='GPU', num_devices=8,
         kernel='cudnn', git_dirty=True),
    make(seed=2, status='oom', train_seconds=None, git_published=False),
    make(seed=3, runs_at_once=3, peak_memory_bytes=2**29, git_published=False,
         git_dirty=True)]
SEEDS[2]['config']['train']['steps'] = 2000
SAID = [{**run, 'data_origin': 'copies of reviews'} for run in RUNS]
# Runs, their baselines, texts on the pages, and texts that are not there.
CASES = {
    'no origin of data': (RUNS, FLOORS, [], ['| data |', '; data:']),
    'origin of data': (SAID, {**FLOORS, 'origin': 'copies of reviews'}, [
        '| test examples | answers | data | pooling |',
        '| 200 | not kept | copies of reviews | cls |',
        '| logistic regression; data: copies of reviews |'], []),
    'some have an origin': ([RUNS[0], SAID[3]], FLOORS, [
        '| 200 | not kept | – | cls |',
        '| 200 | not kept | copies of reviews | cls |'], []),
    'state size': ([make(state_size=7), make('lost_model', right=120)], FLOORS,
                   ['| 1 | 1,000 | 7 |', '| 1 | 1,000 | – |'], []),
    'seeds that differ': (SEEDS, FLOORS, [
        '| best | 2,000 / 500 / – / 1,500 | 300 / 5.00 / – / 160 | 4.50 '
        '| 8.25 | 1.50 / 1.50 / 1.50 / 0.50 '
        '| CPU / 8 x GPU / CPU / CPU, 3 runs at once | float32 '
        '| xla / cudnn / xla / xla | ffff0000 / c0ffee12 (modified) '
        '/ c0ffee12 (unpublished) / c0ffee12 (unpublished, modified) |'], []),
    'flags of the compiler': (
        [make(), make(seed=1, xla_flags=['--xla_a=0', '--xla_b=1'])], FLOORS,
        ['| float32 | xla / xla --xla_a=0 --xla_b=1 | c0ffee12 |'], []),
    'means on one device': (
        [make(train_seconds=100.0), make(seed=1, train_seconds=200.0)], FLOORS,
        ['| best | 1,500 | 150 | 4.50 | 8.25 | 1.50 | CPU |'], []),
    'kinds of examples': ([
        make(test=scores(130, 70, **_parts(0.25, 0.5))),
        make(seed=1, test=scores(140, 60, loss=loss(1), **_parts(0.75, 0.75))),
        make('simpletron')], FLOORS, [
            '| model | protocol | accuracy % | as first token % '
            '| depth 9 % | depth 10 % |',
            '| transformer | simpletron | 67.5 | 50.0 | 50.0 | 62.5 |',
            '| simpletron | simpletron | 65.0 | – | – | – |'],
                          []),
    'a kind of all examples': (
        [make(test=scores(130, 70, **_parts(0.5, 0.65, 0))),
         make('simpletron')], FLOORS,
        ['| accuracy % | as first token % |\n'], ['depth 10 %']),
    'another task': (RUNS, FLOORS, [], ['Black pixels']),
    'a note': ([make(task='pathfinder_mini')],
               {**FLOORS, 'task': 'pathfinder_mini'},
               ['\nBlack pixels', '`bigbird`'], []),
    'slowest seed': ([make(learnt_step=900), make(seed=1, learnt_step=1200)],
                     FLOORS, ['| steps to 95% |', '| 2 | 1,200 | 1,000 |'], []),
    'a seed that did not learn': ([make(learnt_step=900), make(seed=1)],
                                  FLOORS, [], ['| steps to 95% |']),
    'versions': ([make(model_sha256='a' * 64, git_dirty=True),
                  make(seed=1, model_sha256='b' * 64)], FLOORS, [
                      'c0ffee12 (modified: model aaaaaaaa) / c0ffee12 |',
                      '**mixed versions**'], []),
    'ends of cells': ([make(device='a|b\nc')], FLOORS, [r'| a\|b c |'], []),
    'foreign data': ([*RUNS[:2], make(
        seed=5, right=190, data_fingerprint='beef00000000',
        floors={'majority': 0.55})], FLOORS, [
            '**data beef0000, baselines are of data feed0000**',
            '| – | transformer (data=beef0000) | 95.0 |',
            '| 1 | transformer (data=feed0000) | 65.3 |',
            '| majority | 55.00 | computed by the runs on data beef0000 |'],
                     []),
}


@pytest.mark.parametrize('case', CASES)
def test_what_the_records_say_is_on_the_pages(tmp_path, case):
  runs, floors, wanted, unwanted = CASES[case]
  text = Place(tmp_path, runs, (floors,)).render()
  assert [part for part in wanted if part not in text] == []
  assert [part for part in unwanted if part in text] == []


def test_each_task_has_a_page_and_pairs_name_their_head(tmp_path):
  place = Place(tmp_path, [*RUNS, make('longformer', task='retrieval')])
  place.write()
  folder = tmp_path / 'leaderboard'
  assert {path.name for path in folder.iterdir()} == {
      'retrieval.md', 'text_mini.md', 'reading.md', 'mechanisms',
      'mechanisms.md', 'published.md', 'results.csv', 'runs.csv'}
  first, pairs, mini = (unlinked(path.read_text('utf-8')) for path in (
      place.page, folder / 'retrieval.md', folder / 'text_mini.md'))
  assert 'leaderboard/retrieval.md)' in first
  assert '| 1 | longformer | 65.0 |' in pairs and '1,101' not in pairs
  assert '| test examples | answers | pooling | head |' in pairs
  assert '| 200 | not kept | cls | concat |' in pairs
  assert '| longformer |' not in mini and '| head |' not in mini
  # The pages of tasks without records go.
  (place.runs / 'retrieval' / f'run{len(RUNS)}.json').unlink()
  (place.runs / 'text_mini').rename(tmp_path / 'elsewhere')
  (folder / 'notes.md').touch()
  (place.figures / 'listops_speed.svg').touch()
  place.write()
  assert not {'retrieval.md', 'mechanisms.md', 'runs.csv'} & {
      path.name for path in folder.iterdir()}
  assert (folder / 'notes.md').exists() and not list(place.figures.iterdir())


def test_protocols_are_not_ranked_together(tmp_path):
  other = make(right=190, protocol='lra')
  other['config']['protocol'] = 'lra'
  text = Place(tmp_path, [*RUNS, other]).render()
  lra, simpletron = text.split('## Protocol `lra`')[1].split(
      '## Protocol `simpletron`')
  assert '| 1 | transformer | 95.0 |' in lra
  assert '| simpletron |' not in lra
  assert SCORES in simpletron


def test_published_rows_stay_in_their_own_tables(tmp_path):
  text = Place(tmp_path, RUNS).render()
  theirs = text.split('# Published results')[1].split('# Text mini')[0]
  assert text.count('63.14') == theirs.count('63.14') == 1
  assert 'simpletron |' not in theirs
  lra, mega = theirs.split('## `mega`')
  assert ('| [Transformer](https://arxiv.org/abs/2011.04006) | 36.37 | 64.27 '
          '| 57.46 | – |') in lra
  assert '| 63.14 | 90.4 | 91.25 | – | – | FAIL | – | – | Table 1 |' in mega
  assert 'Mega' not in lra.split('## `lra`')[1]


def test_bytes_depend_on_nothing_but_the_records(tmp_path):
  places = [Place(tmp_path / name) for name in 'ab']
  for seed, place in enumerate(places):
    runs = copy.deepcopy([*RUNS, make('performer', right=120)])
    random.Random(seed).shuffle(runs)
    for i, run in enumerate(runs):
      items = list(run.items())
      random.Random(i + seed).shuffle(items)
      place.put(dict(items), f'text_mini/{(i * 5 + seed) % 7}.json')
  a, b = places
  a.write(html=a.folder / 'html', command=lambda run, _: f'run {run.model}')
  code = ('import pathlib, sys; from lra.board import store; '
          'from lra.board import publish; '
          'from lra.board.site import Place; '
          'store.protocol_settings = lambda task, protocol: {}; '
          'html, page = map(pathlib.Path, sys.argv[1:]); publish.write('
          "Place(page.parent, page, lambda run, _: f'run {run.model}', None), "
          'html)')
  subprocess.run(
      [sys.executable, '-c', code, str(b.folder / 'html'), str(b.page)],
      check=True, cwd=ROOT, env={
          **os.environ, 'TZ': 'Asia/Tokyo', 'LC_ALL': 'C', 'LANG': 'C',
          'PYTHONHASHSEED': '7', 'PYTHONUTF8': '0'})
  # The pages show the file names of the records, which differ between places.
  for name in (
      'leaderboard.md', 'leaderboard/text_mini.md', 'html/index.html',
      'html/text_mini.html'):
    pages = [re.sub(rb'runs/text_mini/\d\.json', b'', (
        place.folder / name).read_bytes()) for place in places]
    assert pages[0] == pages[1]
  names = sorted(p.name for p in a.figures.iterdir())
  assert names == ['text_mini_accuracy.svg']
  for name in names:
    data = (a.figures / name).read_bytes()
    assert data == (b.figures / name).read_bytes()
    assert f'](../figures/{name})' in (
        a.folder / 'leaderboard/text_mini.md').read_text('utf-8')


def test_pages_use_no_device(tmp_path):
  """Pages may import JAX, for the rows' commands, but use no device."""
  kept = next((paths.PACKAGED / 'runs/listops_mini').glob('simpletron-*.json'))
  (tmp_path / 'runs/listops_mini').mkdir(parents=True)
  shutil.copy(kept, tmp_path / 'runs/listops_mini')
  code = ('import pathlib, sys; from lra.board import catalogue, render, site; '
          'catalogue.listing(); assert "jax" not in sys.modules; '
          'from lra.cli import board; '
          'found = site.load(board.place(pathlib.Path(sys.argv[1]))); '
          'render.markdown(found); assert len(found.boards) == 1; '
          'from jax._src import xla_bridge; '
          'sys.exit(xla_bridge.backends_are_initialized())')
  subprocess.run([sys.executable, '-c', code, tmp_path], check=True, cwd=ROOT)


@pytest.mark.parametrize('spoilt', ['page', 'html'])
def test_an_unwritable_folder_leaves_everything_as_it_was(tmp_path, spoilt):
  place = Place(tmp_path, RUNS)
  place.write()
  before = place.page.read_bytes()
  place.put(make('local'), 'text_mini/another.json')
  (tmp_path / 'file').touch()
  where = {'html': tmp_path / 'file'}
  if spoilt == 'page':
    where, place.page = {}, tmp_path / 'file' / 'leaderboard.md'
  with pytest.raises(UserError, match='Cannot write .*file') as error:
    place.write(**where)
  assert '\n' not in str(error.value)
  assert (tmp_path / 'leaderboard.md').read_bytes() == before
  assert not list(tmp_path.rglob('.tmp-*'))


@pytest.fixture(scope='module')
def committed():
  return site.load(site.Place(paths.PACKAGED, paths.page(), repeat.command))


def test_committed_pages_are_current(committed):
  place, made = committed.place, render.markdown(committed)
  assert {path: path.read_text('utf-8') for path in made} == made, (
      'run `python run_lra.py --leaderboard` and commit what it writes')
  assert {path for path in made if path not in (
      place.page, place.page.with_name('README.md'))} == {
          *place.details.rglob('*.md')}
  assert not committed.left_out
  assert {p.name for p in place.figures.glob('*.svg')} == {
      figure.name for figure in [
          *(one for board in committed.begun
            for one in charts.of_task(board)),
          *suite_charts.every(committed)]}


def test_each_record_is_on_one_html_page(committed):
  pages = render.html(committed, paths.PACKAGED)
  assert sorted(name for text in pages.values() for name in re.findall(
      '<code class="file">runs/([^<]*)<', text)) == sorted(
          path.relative_to(committed.place.runs).as_posix()
          for path in committed.place.runs.rglob('*.json'))
  assert max(map(len, pages.values())) < 1_000_000


def test_numbers_can_be_sorted(committed):
  """The page's script sorts a column of numbers by the first in each text."""
  tables = [*tables_lib.published(committed.papers).values(),
            *map(mechanisms.table, committed.mechanisms.values()),
            mechanisms.index(committed.mechanisms, committed.arena)]
  for board in committed.boards:
    tables += [tables_lib.baselines(board), tables_lib.details(board),
               kinds.breakdown(board), kinds.longer(board), *(
                   found.table for found in tables_lib.scores(board, []))]
  texts = {column.text(item).lstrip(NONE + ' /')
           for table in filter(None, tables) for item in table.items
           for column in table.columns if column.number} - {'', 'FAIL'}
  assert len(texts) > 1000
  assert not [text for text in texts if not re.match(r'[+-]?\d', text)]


def test_the_note_on_listops_has_the_numbers_of_its_records(committed):
  """Rows near the baseline of listops have its accuracies by depth."""
  assert set(render.TEXTS['notes']) <= set(tasks.TASKS)
  text = render.TEXTS['notes']['listops']
  board, = (b for b in committed.boards if b.task.name == 'listops')
  kind = 'decided at depth'
  rule, = (b for b in board.baselines if b.name == 'first operator')
  of_rule = [rule.parts[kind][depth].accuracy
             for depth in sorted(rule.parts[kind], key=int)]
  assert [f'{100 * share:.1f}%' for share in of_rule[:3]] == re.findall(
      r'[0-9.]+%', text)
  assert max(of_rule[3:]) < of_rule[2]
  near = [run.test.parts[kind] for row in board.finished.row
          for run in row.finished
          if abs(run.test.accuracy - rule.accuracy) < 0.02]
  assert len(near) > 3
  for parts in near:
    for depth in (1, 2, 3):  # two standard errors are 2 to 5 points
      assert abs(parts[str(depth)].accuracy - of_rule[depth - 1]) < 0.06
  counts = {int(depth): part.examples for depth, part in near[0].items()}
  counted = [counts[depth] for depth in (1, 2, 3, 4)]
  assert [*counted, 2000 - sum(counted)] == [
      int(number) for number in re.findall(r'(?<![,\d])\d{3}\b', text)]
