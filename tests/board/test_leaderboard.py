"""Tests the pages of the leaderboard, which depend on its records only."""

import copy
import os
import random
import re
import shutil
import subprocess
import sys

import pytest

from lra.board import figures, publish, render, site
from lra.cli import repeat
from lra.core import paths
from lra.core.errors import UserError
from tests.helpers import scored
from tests.helpers.page import FLOORS, RUNS, Place, loss, make, scores
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


def test_what_data_was_made_of_is_in_its_row(tmp_path):
  floors = {**FLOORS, 'origin': 'copies of reviews'}
  plain = Place(tmp_path / 'plain', RUNS).render()
  assert '| data |' not in plain and '; data:' not in plain
  said = [{**run, 'data_origin': 'copies of reviews'} for run in RUNS]
  page = Place(tmp_path / 'said', said, (floors,)).render()
  assert '| test examples | answers | data | pooling |' in page
  assert '| 200 | not kept | copies of reviews | cls |' in page
  assert '| logistic regression; data: copies of reviews |' in page
  mixed = Place(tmp_path / 'mixed', [RUNS[0], said[3]]).render()
  assert '| 200 | not kept | – | cls |' in mixed
  assert '| 200 | not kept | copies of reviews | cls |' in mixed


def test_tables_are_those_written_by_hand(tmp_path):
  text = Place(tmp_path, RUNS).render()
  assert SCORES in text
  assert BASELINES in text
  assert DETAIL in text
  assert text.index(BASELINES) < text.index(SCORES)
  assert text.endswith('\n') and not text.endswith('\n\n')


def test_speed_is_in_no_table(tmp_path):
  for line in Place(tmp_path, RUNS).render().splitlines():
    assert not (line.startswith('|') and 'steps/s' in line)


def test_each_task_has_a_page_and_pairs_name_their_head(tmp_path):
  place = Place(tmp_path, [*RUNS, make('longformer', task='retrieval')])
  place.write()
  folder = tmp_path / 'leaderboard'
  assert {path.name for path in folder.iterdir()} == {
      'retrieval.md', 'text_mini.md', 'reading.md', 'mechanisms.md',
      'published.md', 'results.csv', 'runs.csv'}
  first, pairs, mini = (path.read_text('utf-8') for path in (
      place.page, folder / 'retrieval.md', folder / 'text_mini.md'))
  assert 'leaderboard/retrieval.md)' in first
  assert '| 1 | longformer | 65.0 |' in pairs and '1,101' not in pairs
  assert '| test examples | answers | pooling | head |' in pairs
  assert '| 200 | not kept | cls | concat |' in pairs
  assert '| longformer |' not in mini and '| head |' not in mini


def test_the_page_of_a_task_without_records_is_removed(tmp_path):
  place = Place(tmp_path, [*RUNS, make(task='retrieval')])
  place.write()
  (place.runs / 'retrieval' / f'run{len(RUNS)}.json').unlink()
  (place.runs / 'text_mini').rename(tmp_path / 'elsewhere')
  kept = tmp_path / 'leaderboard' / 'notes.md'
  kept.touch()
  place.write()
  for name in ('retrieval', 'mechanisms'):
    assert not (tmp_path / 'leaderboard' / f'{name}.md').exists()
  assert kept.exists()


def test_protocols_are_not_ranked_together(tmp_path):
  other = make(right=190, protocol='lra')
  other['config']['protocol'] = 'lra'
  text = Place(tmp_path, [*RUNS, other]).render()
  lra, simpletron = text.split('## Protocol `lra`')[1].split(
      '## Protocol `simpletron`')
  assert '| 1 | transformer | 95.0 |' in lra
  assert '| simpletron |' not in lra
  assert SCORES in simpletron


def test_a_record_has_its_state_or_the_page_computes_it(tmp_path):
  """The page shows a record's `state_size`, and '–' for an unknown model."""
  text = Place(tmp_path, [
      make(state_size=7), make('lost_model', right=120)]).render()
  assert re.search(r'\| transformer \| 65.0 \|.*\| 1,000 \| 7 \|', text)
  assert re.search(r'\| lost_model \| 60.0 \|.*\| 1,000 \| – \|', text)


def test_a_page_of_changed_runs_alone_says_where_they_are(tmp_path):
  place = Place(tmp_path, [make(changes={'train.steps': 9})])
  place.write(html=tmp_path / 'html')
  first = place.page.read_text('utf-8')
  html = (tmp_path / 'html' / 'index.html').read_text('utf-8')
  # The full tasks and the probes have no run.
  assert first.count('No run yet.') == 2
  assert first.count('changed from their protocol') == 1
  assert 'tasks: [Text mini](leaderboard/text_mini.md).' in first
  assert html.count('<p>All rows have settings that are changed') == 1
  assert '<a href="#text_mini">Text mini</a>.' in html


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


def test_foreign_data_is_flagged_and_not_averaged(tmp_path):
  foreign = make(seed=5, right=190, data_fingerprint='beef00000000',
                 floors={'majority': 0.55})
  text = Place(tmp_path, [*RUNS[:2], foreign]).render()
  assert '**data beef0000, baselines are of data feed0000**' in text
  assert '| – | transformer (data=beef0000) | 95.0 |' in text
  assert '| 1 | transformer (data=feed0000) | 65.3 |' in text
  assert '| majority | 55.00 | computed by the runs on data beef0000 |' in text


def test_what_differs_between_seeds_is_in_their_order(tmp_path):
  runs = [make(best_step=2000, train_seconds=300.0, git_commit='ffff00001234'),
          make(seed=1, best_step=500, train_seconds=5.0, device='GPU',
               num_devices=8, kernel='cudnn', git_dirty=True),
          make(seed=2, status='oom', train_seconds=None, git_published=False),
          make(seed=3, runs_at_once=3, peak_memory_bytes=2**29,
               git_published=False, git_dirty=True)]
  runs[2]['config']['train']['steps'] = 2000
  text = Place(tmp_path, runs).render()
  assert ('| best | 2,000 / 500 / – / 1,500 | 300 / 5.00 / – / 160 | 4.50 '
          '| 8.25 | 1.50 / 1.50 / 1.50 / 0.50 '
          '| CPU / 8 x GPU / CPU / CPU, 3 runs at once | float32 '
          '| xla / cudnn / xla / xla | ffff0000 / c0ffee12 (modified) '
          '/ c0ffee12 (unpublished) / c0ffee12 (unpublished, modified) |'
          ) in text


def test_flags_of_the_compiler_are_beside_the_kernel_of_their_seed(tmp_path):
  text = Place(tmp_path, [
      make(), make(seed=1, xla_flags=['--xla_a=0', '--xla_b=1'])]).render()
  assert '| float32 | xla / xla --xla_a=0 --xla_b=1 | c0ffee12 |' in text


def test_on_one_device_times_are_means(tmp_path):
  text = Place(tmp_path, [
      make(train_seconds=100.0), make(seed=1, train_seconds=200.0)]).render()
  assert '| best | 1,500 | 150 | 4.50 | 8.25 | 1.50 | CPU |' in text


def test_what_accuracies_are_made_of_is_a_mean_over_seeds(tmp_path):
  def parts(share, depth):
    return dict(agreement={'first token': share}, parts={'depth': {
        '10': {'examples': 150, 'accuracy': depth},
        '9': {'examples': 50, 'accuracy': 0.5}}})
  text = Place(tmp_path, [
      make(test=scores(130, 70, **parts(0.25, 0.5))),
      make(seed=1, test=scores(
          140, 60, loss=loss(1), **parts(0.75, 0.75))),
      make('simpletron')]).render()
  assert ('| model | protocol | accuracy % | as first token % '
          '| depth 9 % | depth 10 % |') in text
  assert 'All test examples' not in text
  assert '| transformer | simpletron | 67.5 | 50.0 | 50.0 | 62.5 |' in text
  assert '| simpletron | simpletron | 65.0 | – | – | – |' in text


def test_what_all_examples_have_in_common_is_said_once(tmp_path):
  parts = {'depth': {'9': {'examples': 200, 'accuracy': 0.65}},
           'operator': {'MAX': {'examples': 100, 'accuracy': 0.65},
                        'MIN': {'examples': 100, 'accuracy': 0.65}}}
  text = Place(tmp_path, [make(test=scores(130, 70, parts=parts)),
                          make('simpletron')]).render()
  assert '| accuracy % | operator MAX % | operator MIN % |' in text
  assert text.count('\n\nAll test examples have depth 9, so the table has no '
                    'accuracy by depth.\n\n') == 1


def test_what_scores_need_to_be_read_is_under_their_task(tmp_path):
  text = Place(tmp_path, RUNS).render()
  assert 'Black pixels' not in text
  images = {**FLOORS, 'task': 'pathfinder_mini'}
  text = Place(tmp_path / 'images', [
      make(task='pathfinder_mini')], (images,)).render()
  note, = re.findall('\n(Black pixels.*)\n', text)
  assert '`bigbird`' in note


@pytest.mark.parametrize(('steps', 'text'), [
    ([900, 1200], '1,200'), ([900, None], None)])
def test_steps_to_95_percent_are_those_of_the_slowest_seed(
    tmp_path, steps, text):
  page = Place(tmp_path, [make(seed=seed, learnt_step=step)
                          for seed, step in enumerate(steps)]).render()
  assert ('| steps to 95% |' in page) == (text is not None)
  assert text is None or f'| 2 | {text} | 1,000 |' in page


def test_text_cannot_break_a_table(tmp_path):
  text = Place(tmp_path, [make(device='a|b\nc')]).render()
  assert r'| a\|b c |' in text


def test_empty_state_says_how_to_add_a_row(tmp_path):
  place = Place(tmp_path, floors=())
  place.write()
  text = place.page.read_text('utf-8')
  assert 'No run yet' in text
  assert 'python run_lra.py --config=configs/simpletron.py:listops_mini' in text
  assert '[Mega](https://arxiv.org/abs/2209.10655) | 63.14 |' in (
      tmp_path / 'leaderboard' / 'published.md').read_text('utf-8')
  assert not place.figures.exists()


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
  code = ('import pathlib, sys; from lra.schema import store; '
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
      'leaderboard.md', 'leaderboard/text_mini.md', 'html/index.html'):
    pages = [re.sub(rb'runs/text_mini/\d\.json', b'', (
        place.folder / name).read_bytes()) for place in places]
    assert pages[0] == pages[1]
  names = sorted(p.name for p in a.figures.iterdir())
  assert names == ['text_mini_accuracy.svg', 'text_mini_speed.svg']
  for name in names:
    data = (a.figures / name).read_bytes()
    assert data == (b.figures / name).read_bytes()
    # A figure of speeds names only the models that no other beats.
    assert (b'performer' in data) == ('accuracy' in name)
    assert f'](../figures/{name})' in (
        a.folder / 'leaderboard/text_mini.md').read_text('utf-8')


def test_pages_use_no_device(tmp_path):
  """Pages may import JAX, for the rows' commands, but use no device."""
  kept = next((paths.PACKAGED / 'runs/listops_mini').glob('simpletron-*.json'))
  (tmp_path / 'runs/listops_mini').mkdir(parents=True)
  shutil.copy(kept, tmp_path / 'runs/listops_mini')
  code = ('import pathlib, sys; from lra.schema import curves; '
          'from lra.board import catalogue, render, site; '
          'from lra.cli import board; catalogue.listing(); '
          'assert "jax" not in sys.modules; '
          'found = site.load(board.place(*map(pathlib.Path, sys.argv[1:]))); '
          'render.markdown(found); '
          'assert len(found.boards) == 1; '
          'from jax._src import xla_bridge; '
          'sys.exit(xla_bridge.backends_are_initialized())')
  subprocess.run(
      [sys.executable, '-c', code, tmp_path, tmp_path / 'page.md'], check=True,
      cwd=ROOT)


def test_figures_of_a_task_without_runs_are_removed(tmp_path):
  place = Place(tmp_path, RUNS)
  place.write()
  stale = place.figures / 'listops_speed.svg'
  stale.touch()
  place.write()
  assert not stale.exists()
  assert [p.name for p in place.figures.iterdir()] == [
      'text_mini_accuracy.svg']


def test_an_unwritable_folder_leaves_everything_as_it_was(tmp_path):
  place = Place(tmp_path, RUNS)
  (tmp_path / 'file').touch()
  place.page = tmp_path / 'file' / 'leaderboard.md'
  with pytest.raises(UserError, match='Cannot write .*leaderboard'):
    place.write()
  assert not place.figures.exists() or not list(place.figures.iterdir())


def test_committed_pages_are_current():
  place = site.Place(paths.PACKAGED, paths.page(), repeat.command)
  made = render.markdown(site.load(place))
  assert {path.name: path.read_text('utf-8') for path in made} == {
      path.name: text for path, text in made.items()}, (
          'run `python run_lra.py --leaderboard` and commit what it writes')
  assert set(place.details.glob('*.md')) == set(made) - {place.page}


def test_committed_figures_are_of_these_rows():
  place = site.Place(paths.PACKAGED, paths.page())
  found = site.load(place)
  assert not found.left_out
  planned = publish.figures_of(found)
  assert {p.name for p in place.figures.glob('*.svg')} == {
      figure.name for figure in planned}
  assert [figure.name for figure in planned
          if not figures.kept(figure, place.figures)] == []


def test_figures_are_drawn_again_only_if_their_rows_changed(
    tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(figures, '_drawn', lambda figure: (
      drawn.append(figure.name) or figures.sealed(b'<svg/>', figure)))
  place = Place(tmp_path, [*RUNS, make('local', task='mqar', test=scored.of(
      [[int(i == j) for j in range(64)] for i in range(64)]), val=None)])
  names = ['text_mini_accuracy.svg', 'mqar_accuracy.svg']
  changes = [
      (lambda: None, names), (lambda: None, []),
      (lambda: place.put(make('mqa'), 'text_mini/more.json'), names[:1]),
      (lambda: (place.figures / names[1]).write_bytes(b'<svg></svg>'),
       names[1:]),
      (lambda: monkeypatch.setattr(figures, '_code', lambda: b'other'), names)]
  for change, wanted in changes:
    drawn.clear()
    change()
    place.write()
    assert drawn == wanted
