"""Tests that objectives are found by name."""

import pytest

from lra import objectives
from lra.errors import UserError


@pytest.mark.parametrize('name', ['base', '__init__', 'another'])
def test_what_is_no_objective_names_those_there_are(name):
  with pytest.raises(UserError, match=(
      'choose one of classification, token_classification')):
    objectives.get(name)
