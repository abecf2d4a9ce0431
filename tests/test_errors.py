"""Tests the names that errors suggest."""

import pytest

from configs import base
from lra import models, tasks
from lra.config.fields import FIELDS
from lra.errors import UserError, choose
from lra.experiment import loader


@pytest.mark.parametrize('say, meant', [
    (lambda: tasks.get('listops_min'), 'listops_mini'),
    (lambda: base.get_config('lisops'), 'listops'),
    (lambda: base.get_config('listops,protocol=nystorm'), 'nystrom'),
    (lambda: base.settings('listops', 'lrb'), 'lra'),
    (lambda: models.mixer('transfomer'), 'transformer'),
    (lambda: loader.made_by(['--config=configs/simpletorn.py:listops']),
     'simpletron.py'),
    (lambda: loader.made_by(['--config=configs/local.py:listopps']),
     'listops'),
])
def test_a_wrong_name_has_the_likeliest_one_beside_it(say, meant):
  with pytest.raises(UserError, match=f'did you mean [a-z/]*{meant}[?,]'):
    say()


@pytest.mark.parametrize('name', [
    name for name, field in FIELDS.items() if field.choices])
def test_a_wrong_choice_names_all_choices(name):
  choices = list(map(str, FIELDS[name].choices))
  for choice in choices:
    said = choose(choice.upper() + 'x', choices)
    assert all(other in said for other in choices)
    assert len(choice) < 3 or f'did you mean {choice}' in said


def test_a_name_like_no_other_has_all_names_beside_it():
  with pytest.raises(UserError, match='one of .*listops.*text'):
    tasks.get('0000')
