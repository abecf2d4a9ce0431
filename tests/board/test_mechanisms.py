"""Tests the pages of mechanisms: results, rivals, failures, links, standing."""

import re

import pytest

from lra.board import mechanisms, publish, site
from lra.schema import result
from tests.helpers.page import FLOORS, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
# Of 200 examples, so that 20 points or more differ by Fisher's exact test, and
# 10 points do not, with Holm's correction over the pairs. The baseline is 68%.
RIGHT = {'local': 190, 'simpletron': 180, 'transformer': 170, 'linformer': 168,
         'performer': 150, 'reformer': 100}


def runs(right, **options):
  return [make(model, right=count, state_size=8, **options)
          for model, count in right.items()]


def pages(tmp_path, records, floors=(FLOORS,)):
  """Writes the pages; returns {name: text} of those of mechanisms."""
  place = Place(tmp_path, records, floors)
  place.write(command=lambda run, seeds: f'repeat {run.model} {seeds}')
  return {path.stem: path.read_text('utf-8')
          for path in place.place().pages.iterdir()}


def cells(text, heading):
  """Returns the table with a heading, as {heading: cell} of each line."""
  lines = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in text.split('\n') if line.startswith('|')]
  at = next(i for i, line in enumerate(lines) if heading in line)
  made = []
  for line in lines[at + 2:]:
    if len(line) != len(lines[at]):
      break
    made.append(dict(zip(lines[at], line, strict=True)))
  return made


def test_a_page_has_results_rivals_failures_and_commands(tmp_path):
  found = pages(tmp_path, runs(RIGHT))
  assert set(found) == set(RIGHT)
  line, = cells(found['linformer'], 'rank')
  assert line['task'] == '[Text mini](../text_mini.md)'
  assert line['accuracy %'] == '84.0 ±5.1'  # Wilson: 78.3 to 88.4
  assert line['above baseline'] == '+16.0'
  assert line['beside the Transformer'] == 'not significantly different'
  # 190 differ from 168, and 100 from all; the nearest comes first.
  assert line['rank'] == '2 to 5 of 6'
  assert line['not significantly different from'] == ', '.join(
      f'[{name}]({name}.md)'
      for name in ('transformer', 'simpletron', 'performer'))
  assert (line['seeds'], line['parameters'], line['state size']) == (
      '1', '1,000', '8')
  assert '`repeat linformer [0]`' in found['linformer']
  assert 'softmax' in found['linformer'] and 'arXiv 2006.04768' in found[
      'linformer']
  worst, = cells(found['reformer'], 'rank')
  assert worst['beside the Transformer'] == 'significantly worse'
  for name, low, worse in (
      ('local', 'on no task', 'on no task'),
      ('performer', 'Text mini (simpletron)', 'on no task'),
      ('reformer', 'Text mini (simpletron)', 'Text mini (simpletron)')):
    assert f'* Not significantly above the baseline: {low}.' in found[name]
    assert ('* Significantly worse than the Transformer: '
            f'{worse}.') in found[name]


def test_of_many_rivals_five_are_named(tmp_path):
  found = pages(tmp_path, runs({f'model{i}': 150 + i for i in range(9)}))
  line, = cells(found['model8'], 'rank')
  assert line['not significantly different from'] == ', '.join(
      f'[model{i}](model{i}.md)' for i in (7, 6, 5, 4, 3)) + ' and 3 more'
  # Without a Transformer nothing is said about it.
  assert line['beside the Transformer'] == '–'


def test_changed_rows_are_there_if_a_task_has_no_others(tmp_path):
  changed = runs({'local': 140}, changes={'train.steps': 1}, steps=9)
  found = pages(tmp_path / 'a', changed)
  assert [line['protocol'] for line in cells(found['local'], 'rank')] == [
      'simpletron, settings changed']
  found = pages(tmp_path / 'b', [*changed, *runs({'local': 150}), *runs(
      {'local': 120}, task='parity', changes={'train.steps': 1})])
  assert [(line['task'][1:7], line['protocol'])
          for line in cells(found['local'], 'rank')] == [
              ('Text m', 'simpletron'),
              ('Parity', 'simpletron, settings changed')]


def test_pages_link_to_mechanisms_and_stale_pages_go(tmp_path):
  place = Place(tmp_path, runs(RIGHT))
  place.write()
  first, text, index = (path.read_text('utf-8') for path in (
      place.page, place.details / 'text_mini.md',
      place.details / 'mechanisms.md'))
  for page in (first, text, index):
    linked = re.findall(r'\]\((?:leaderboard/)?(mechanisms/\w+\.md)\)', page)
    assert {f'mechanisms/{name}.md' for name in RIGHT} == set(linked)
    assert all((place.details / name).is_file() for name in linked)
  families = [(line['family'], line['mechanism'].split(']')[0][1:])
              for line in cells(index, 'mechanism')]
  assert families == [
      ('dense', 'transformer'), ('kernel', 'performer'),
      ('linear', 'simpletron'), ('low-rank', 'linformer'), ('sparse', 'local'),
      ('sparse', 'reformer')]
  for record in place.runs.rglob('*.json'):
    if '"local"' in record.read_text():
      record.unlink()
  place.write()
  assert {path.stem for path in place.place().pages.iterdir()} == (
      set(RIGHT) - {'local'})


def test_a_recorded_run_hears_where_it_stands(tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  place = Place(tmp_path, runs(RIGHT)).place()
  new = make('linear_transformer', right=169, num_params=900, git_dirty=False)
  publish.publish(result.validate(new), place)
  said = capsys.readouterr().out.splitlines()
  assert said[-1] == (
      'Text mini, simpletron: place 2 to 6 of 7; not significantly different '
      'from the transformer; leaderboard/text_mini.md')
  # All files are new.
  assert said[-2] == (
      'wrote leaderboard.md, figures/text_mini_accuracy.svg, 6 files in '
      'leaderboard, 7 files in leaderboard/mechanisms')
  publish.regenerate(place)
  assert capsys.readouterr().out == 'wrote leaderboard.md\n'
  boards = site.load(place).boards
  assert not mechanisms.standing(boards, 'runs/none.json')
