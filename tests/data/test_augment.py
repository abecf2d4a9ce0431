"""Compares augmented images with Pillow's, and tests what the draws depend on.

Pillow's affine transform is what torchvision, and so the source, calls.
"""

import math

import numpy as np
import pytest
from PIL import Image, ImageOps

from lra import tasks
from lra.data import augment, prepared
from lra.errors import UserError
from lra.experiment import experiment
from lra.objectives import causal, classification, masked
from tests.helpers import small

RNG = np.random.default_rng(0)


def _by_pillow(picture, change, drawn):
  """Returns one image [S, S] uint8 after the changes, by PIL."""
  side = len(picture)
  mirror, upend, turn, right, down, scale = drawn
  image = Image.fromarray(picture)
  if change.mirror and mirror < 0.5:
    image = ImageOps.mirror(image)
  if change.upend and upend < 0.5:
    image = ImageOps.flip(image)
  angle = math.radians(change.degrees * (2 * turn - 1))
  size = change.scale[0] + scale * (change.scale[1] - change.scale[0])
  # From original to new: scale and turn around the centre, then shift.
  to_centre, back = np.eye(3), np.eye(3)
  to_centre[:2, 2] = -side / 2
  back[:2, 2] = [side / 2 + round(side * change.shift * (2 * right - 1)),
                 side / 2 + round(side * change.shift * (2 * down - 1))]
  turned = np.diag([size, size, 1]) @ [
      [math.cos(angle), -math.sin(angle), 0],
      [math.sin(angle), math.cos(angle), 0], [0, 0, 1]]
  inverse = np.linalg.inv(back @ turned @ to_centre)
  return np.asarray(image.transform(
      (side, side), Image.Transform.AFFINE, inverse[:2].ravel(),
      Image.Resampling.NEAREST, fillcolor=0))


@pytest.mark.parametrize('dataset', augment.CHANGES)
def test_equals_pillow(dataset):
  change, side = augment.CHANGES[dataset], 32
  codes = RNG.integers(0, 256, (20, side, side)).astype(np.uint8)
  drawn = RNG.random((20, 6))
  got = augment.images(
      codes.reshape(20, -1).astype(np.int16) + 1, change, drawn, 1)
  want = np.stack([_by_pillow(*each) for each in zip(
      codes, [change] * 20, drawn, strict=True)])
  assert got.dtype == np.int16
  # Pixels on the border between two may fall to either side by rounding.
  assert (got - 1 != want.reshape(20, -1)).mean() < 0.002
  assert (got - 1 != codes.reshape(20, -1)).mean() > 0.5


def _objective(kind, **changes):
  config = small.config('transformer', 'pathfinder_mini')
  config.seq_len, config.train.augment, config.mask_black = 0, True, False
  config.update_from_flattened_dict(changes)
  return kind(config, tasks.get(config.task), 256)


def _split(size=6):
  return prepared.Split(
      RNG.integers(0, 256, size * 256).astype(np.uint8),
      np.arange(size + 1) * 256, np.arange(size), None)


def _tokens(objective, split, indices, seed=0, step=0):
  return objective.batch(split, np.array(indices), seed=seed,
                         step=step)['tokens']


@pytest.mark.parametrize('kind', [
    classification.Objective, causal.Objective, masked.Objective])
def test_an_example_depends_on_seed_step_and_index(kind):
  objective, split = _objective(kind), _split()
  batch = _tokens(objective, split, [3, 5])
  np.testing.assert_array_equal(
      batch[1], _tokens(objective, split, [5, 0, 1])[0])
  for other in ({'seed': 1}, {'step': 1}):
    assert (batch != _tokens(objective, split, [3, 5], **other)).mean() > 0.3
  same = prepared.Split(np.tile(split.tokens[:256], 2), split.offsets[:3],
                        split.labels[:2], None)
  one, two = _tokens(objective, same, [0, 1])
  assert (one != two).mean() > 0.3


def test_evaluation_sees_the_images_themselves():
  split = _split()
  np.testing.assert_array_equal(
      _tokens(_objective(classification.Objective), split, [0, 4], step=-1),
      split.tokens.reshape(6, 256)[[0, 4]] + np.int16(1))


@pytest.mark.parametrize('mask_black', [False, True])
def test_pixels_from_outside_are_black(mask_black):
  split = prepared.Split(np.full(6 * 256, 255, np.uint8),
                         np.arange(7) * 256, np.arange(6), None)
  made = _tokens(_objective(classification.Objective, mask_black=mask_black),
                 split, range(6))
  # The factor 0.9 leaves 19 % of the area.
  assert set(np.unique(made)) == {0 if mask_black else 1, 256}
  assert 0.1 < (made != 256).mean() < 0.35


@pytest.mark.parametrize('task, length', [
    ('listops', 0), ('text_mini', 0), ('mqar', 0), ('image_mini', 255)])
def test_only_whole_images_can_be_changed(task, length):
  config = small.config('transformer', task)
  config.seq_len, config.train.augment = length, True
  with pytest.raises(UserError, match='config.train.augment=True'):
    experiment.resolve(config)
