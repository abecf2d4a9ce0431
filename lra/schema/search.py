"""The search that chose the settings of a run."""

import hashlib
import itertools
import json
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lra.schema import identity
from lra.schema.record import MOST, Count, Fraction, Record, Text, field

MOST_TRIED = 1000  # most settings of a search


class Search(Record):
  """The search that chose the settings of a run, without any test score."""
  tried: int = field('Number of settings that were tried.', ge=1, le=MOST_TRIED)
  grid: dict[Text, list[Any]] = field(
      'Field of the config -> the values that were tried; of a sampler, the '
      'values or the range to draw from.', min_length=1, max_length=MOST)
  chosen_by: Literal['validation accuracy']
  seed: Count = field('Seed of the runs that were compared.')
  scores: list[Annotated[tuple[dict[Text, Any], Fraction | None],
                         Field(strict=False)]] = field(
      'Pairs of a setting, {field: value}, and its validation accuracy; None '
      'if its loss was not finite, or if it was pruned.', max_length=MOST_TRIED)
  sampler: Literal['grid', 'tpe'] = field(
      'grid tries all values; tpe draws from them, see `lra.many.search`.',
      'grid')
  pruned: Count = field('Settings whose runs were stopped early.', 0)

  @property
  def text(self) -> str:
    how = '' if self.sampler == 'grid' else (
        f' ({self.sampler.upper()}, {self.pruned} pruned)')
    return f'best of {self.tried}{how} by validation'

  @property
  def digest(self) -> str:
    text = json.dumps(self.model_dump(exclude_unset=True), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]

  @pydantic.model_validator(mode='after')
  def _has_a_score_of_each_setting(self):
    found = [setting for setting, _ in self.scores]
    if self.sampler != 'grid':
      if len(found) != self.tried or any(
          set(setting) != set(self.grid) for setting in found):
        raise ValueError(f"'tried' is {self.tried} but there are {len(found)} "
                         "scores, or one is not of the fields of 'grid'")
      if self.pruned > sum(score is None for _, score in self.scores):
        raise ValueError("'pruned' is more than the settings without a score")
      return self
    whole = [dict(zip(self.grid, values, strict=True))
             for values in itertools.product(*self.grid.values())]
    if len(self.scores) != self.tried or self.tried != len(whole):
      raise ValueError(f"'tried' is {self.tried} but there are "
                       f'{len(self.scores)} scores and a grid of {len(whole)}')
    if any(setting not in found for setting in whole):
      raise ValueError("'scores' lacks a setting of the grid")
    return self

  def chose(self, config: dict) -> bool:
    flat = identity.flatten(config)
    mine = {name: flat.get(name) for name in self.grid}
    known = [score for _, score in self.scores if score is not None]
    return bool(known) and [mine, max(known)] in [
        [setting, score] for setting, score in self.scores]
