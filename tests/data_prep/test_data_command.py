"""Tests of the command `python -m lra.data_prep` and its output."""

import pathlib

import numpy as np
import pytest

from lra.core import tasks
from lra.data import baselines
from lra.data_prep import __main__ as command
from lra.data_prep import describe

FIXTURES = pathlib.Path(__file__).parent.parent / 'fixtures'


def run(*args):
  return command.main(list(args))


def test_prepares_and_describes_listops(tmp_path, capsys):
  args = ['--task=listops', f'--data_dir={tmp_path}']
  assert run(*args, f'--source={FIXTURES / "listops"}') == 0
  assert str(tmp_path / 'listops') in capsys.readouterr().out
  assert run(*args, '--describe') == 0
  out = capsys.readouterr().out
  assert 'train        3 examples; length mean 6.7' in out
  assert '[MAX 2 9 [MIN 4 7 ] 0 ]' in out
  assert '  4: 33.33   0.00   0.00' in out
  assert 'fingerprint: ' in out


def test_describes_pairs(tmp_path, capsys):
  assert run('--task=retrieval', f'--data_dir={tmp_path}',
             f'--source={FIXTURES / "aan"}', '--describe') == 0
  out = capsys.readouterr().out
  assert 'train        7 examples of 9 documents' in out
  assert 'train example 0, label 1\n  Plain with two tabs\n' in out
  assert 'Résumé of naïve Bayes' in out


def test_names_of_earlier_versions_still_work():
  parse = command.parser().parse_args
  assert parse(['--task=text', '--floors', '--floors_dir=here']) == parse(
      ['--task=text', '--baselines', '--baselines_dir=here'])
  assert not parse(['--task=text']).baselines


def test_baselines(tmp_path, capsys):
  pytest.importorskip('sklearn')
  assert run('--task=listops', f'--data_dir={tmp_path}', '--baselines',
             f'--source={FIXTURES / "listops"}',
             f'--baselines_dir={tmp_path / "floors"}') == 0
  record = baselines.read(tmp_path / 'floors' / 'listops.json')
  assert 'first operator' in record.methods
  assert 'first operator' in capsys.readouterr().out


def test_interrupted(tmp_path, capsys, monkeypatch):
  def interrupt(*args):
    raise KeyboardInterrupt
  monkeypatch.setattr(command.data_prep, 'prepare', interrupt)
  assert run('--task=text') == 130
  assert 'interrupted' in capsys.readouterr().err


def test_histogram_counts_every_length_once():
  lengths = np.random.default_rng(0).integers(3, 4001, 5000)
  lines = describe.histogram(lengths)
  bounds = [tuple(map(int, line.split()[:3:2])) for line in lines]
  counts = [int(line.split()[3].replace(',', '')) for line in lines]
  assert bounds[0][0] == lengths.min() and bounds[-1][1] == lengths.max()
  for (low, high), count in zip(bounds, counts, strict=True):
    assert count == np.sum((lengths >= low) & (lengths <= high))
  assert sum(counts) == 5000
  assert max(line.count('#') for line in lines) == 40


def test_decode_survives_half_a_character():
  text = 'café'.encode()[:-1]
  assert describe.decode(tasks.get('text'), text) == 'caf\ufffd'
