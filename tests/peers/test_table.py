"""Checks that the committed table has a row for each test, and no other."""

import ast
import configparser
import csv
import pathlib

from lra import models
from peers import conftest

HERE = pathlib.Path(__file__).parent


def rows():
  with conftest.TABLE.open(newline='') as f:
    return list(csv.DictReader(f))


def test_every_test_has_its_figures():
  tests = {f'{path.stem}.{node.name}'
           for path in HERE.glob('test_*.py')
           for node in ast.parse(path.read_text('utf-8')).body
           if isinstance(node, ast.FunctionDef)
           and 'check' in {arg.arg for arg in node.args.args}}
  assert tests == {row['test'] for row in rows()}, (
      'run `pytest tests/peers --peers-table` and commit what it writes')


def test_figures_are_of_models_and_of_packages_of_the_extra():
  assert {row['model'] for row in rows()} <= set(models.names())
  setup = configparser.ConfigParser()
  setup.read(HERE.parents[1] / 'setup.cfg', 'utf-8')
  extra = setup['options.extras_require']['peers'].split('\n')
  assert {row['package'] for row in rows()} == {
      line.partition('>=')[0] for line in extra if '>=' in line}
