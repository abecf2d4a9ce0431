"""Tests that objectives are found by name."""

import re

import pytest

from lra import objectives
from lra.core.errors import UserError


@pytest.mark.parametrize('name', ['base', '__init__', 'another'])
def test_what_is_no_objective_names_those_there_are(name):
  with pytest.raises(UserError, match=repr(name)) as error:
    objectives.get(name)
  for known in ('causal', 'classification', 'masked', 'token_classification'):
    assert re.search(rf'\b{known}\b', str(error.value))
