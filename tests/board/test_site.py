"""Tests that links and commands of a page fit the folder that it is in."""

import re

import pytest

from lra.board import render, site
from lra.core import paths
from tests.helpers.page import RUNS, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
HEAD = '| model | protocol | records by seed | command |\n'


def command(run, seeds):
  """Replaces `repeat.command`; the run of seed 2 needs another flag."""
  odd = ' --odd' if run.seed == 2 else ''
  return f'run {run.model}{odd} {",".join(map(str, seeds))}'


def records(page):
  """Returns the rows of a page's tables of records, each a list of cells."""
  tables = page.split(HEAD)[1:]
  return [line.strip('|').split(' | ') for table in tables
          for line in table.split('\n\n')[0].splitlines()[1:]]


def test_each_record_is_reached_from_its_row(tmp_path):
  place = Place(tmp_path / 'a', RUNS)
  place.page = tmp_path / 'b' / 'page.md'
  place.write(command=command)
  details = place.page.parent / 'page'
  lines = records((details / 'text_mini.md').read_text('utf-8'))
  assert [[cell.strip() for cell in line[:2]] for line in lines] == [
      ['simpletron', 'simpletron'],
      ['transformer (train.steps=2000)', 'simpletron'],
      ['transformer (train.steps=100)', 'simpletron'],
      ['linear_transformer', 'simpletron']]
  links = [re.findall(r'\[(\d)\]\(([^)]*)\)', line[2]) for line in lines]
  assert [[seed for seed, _ in found] for found in links] == [
      ['0', '1'], ['0', '1'], ['0'], ['0']]
  reached = [(details / path).resolve()
             for found in links for _, path in found]
  assert sorted(reached) == sorted(place.runs.rglob('*.json'))


def test_seeds_that_differ_in_more_have_another_command(tmp_path):
  place = Place(tmp_path, [make(seed=seed) for seed in range(4)])
  lines = records(place.render(command))
  assert [re.findall(r'\[(\d)\]', line[2]) for line in lines] == [
      ['0', '1', '3'], ['2']]
  assert [line[3].strip() for line in lines] == [
      '`run transformer 0,1,3`', '`run transformer --odd 2`']


def test_what_has_no_command_is_a_sentence(tmp_path):
  line, = records(Place(tmp_path, [make()]).render(
      lambda run, seeds: 'No command makes it again here: *gone*.'))
  assert line[3].strip() == r'No command makes it again here: \*gone\*.'


def test_a_folder_of_any_name_is_an_address(tmp_path):
  place = Place(tmp_path / 'a b(c)', [make()])
  place.page = tmp_path / 'page.md'
  assert '[0](../a%20b%28c%29/runs/text_mini/run0.json)' in place.render()
  assert site.address(tmp_path / 'javascript:x', tmp_path) == 'javascript%3Ax'


def test_the_page_of_the_checkout_needs_no_flags():
  usual = site.Place(paths.PACKAGED, paths.page())
  page = render.markdown(site.load(usual))[paths.page()]
  assert '\npython run_lra.py --leaderboard\n' in page
  assert 'run_lra.py --config=configs/simpletron.py:listops_mini\n' in page
  assert ('committed as `lra/results/runs/<task>/<model>-<config hash>-s<seed>'
          '.json`') in page
  assert 'DIR' not in page
  assert usual.details == paths.page().parent / 'docs' / 'leaderboard'


@pytest.mark.parametrize('name, flags, said', [
    ('leaderboard.md', '--results_dir=DIR', 'DIR is the folder with `runs/`'),
    ('../page.md', '--results_dir=DIR --page=PAGE',
     'DIR is the folder with `own/runs/` and PAGE is this file')])
def test_a_page_elsewhere_says_what_flags_it_needs(tmp_path, name, flags, said):
  place = Place(tmp_path / 'own', RUNS)
  place.page = tmp_path / 'own' / name
  page = render.markdown(site.load(place.place()))[place.page]
  assert f'\npython run_lra.py --leaderboard {flags}\n' in page and said in page
  assert (f'run_lra.py --config=configs/simpletron.py:listops_mini {flags}\n'
          in page)
  assert f'kept as {said.split()[5][:-1]}<task>/' in page
  assert 'lra/results' not in page and 'committed' not in page
