"""Tests the text of --print_config: value, meaning and range of every field."""

import re

import pytest

from lra import models
from lra.run import check
from lra.schema import fields, identity
from tests.helpers import small


@pytest.mark.parametrize('model', ['performer', 'reformer', 'simpletron'])
def test_every_field_has_its_value_and_its_meaning(model):
  config = small.config(model, 'listops')
  text = check.described(config)
  found = dict(re.findall(r'^(\S+) = (.*)$', text, re.MULTILINE))
  assert found == {name: repr(value) for name, value in identity.flatten(
      config.to_dict()).items()}
  assert max(map(len, text.splitlines())) <= 80
  _, *meanings = re.split(r'^\S+ = .*\n?', text, flags=re.MULTILINE)
  for name, meaning in zip(found, meanings, strict=True):
    info = fields.FIELDS.get(name)
    assert ' '.join(meaning.split()).startswith(
        info.description if info else ''), name


@pytest.mark.parametrize('model', models.names())
def test_every_argument_of_a_mixer_has_a_meaning(model):
  """Arguments that the encoder sets, or that have a field, need none."""
  found = check.arguments(models.mixer(model)).model_fields
  assert [name for name, info in found.items()
          if not info.description and name not in models.GIVEN
          and f'model.{name}' not in fields.FIELDS] == []
