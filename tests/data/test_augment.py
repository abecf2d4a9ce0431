"""Compares changed images with Pillow's, and other examples with their source.

Pillow's affine transform is what torchvision, and so the source, calls.
"""

import dataclasses
import math

import numpy as np
import pytest
from PIL import Image, ImageOps
from scipy import stats

from lra.core import tasks
from lra.data import augment, batches, prepared
from lra.data_prep import listops, trees
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
  if kind is classification.Objective:
    np.testing.assert_array_equal(
        _tokens(objective, split, [0, 4], step=-1),
        split.tokens.reshape(6, 256)[[0, 4]] + np.int16(1))


@pytest.mark.parametrize('mask_black', [False, True])
def test_pixels_from_outside_are_black(mask_black):
  split = dataclasses.replace(_split(), tokens=np.full(6 * 256, 255, np.uint8))
  made = _tokens(_objective(classification.Objective, mask_black=mask_black),
                 split, range(6))
  assert set(np.unique(made)) == {0 if mask_black else 1, 256}


def _parsed(ids):
  """Returns an expression as nested lists: digits, or (operator, children)."""
  stack = [[]]
  for token in listops.decode(ids - 1).split():
    if token == ']':
      operator, *children = stack.pop()
      stack[-1].append((operator, children))
    elif token.startswith('['):
      stack.append([token])
    else:
      stack[-1].append(int(token))
  [[tree]] = stack
  return tree


def _sorted(tree):
  """Returns a text of the tree that the order of children does not change."""
  if isinstance(tree, int):
    return str(tree)
  return f'{tree[0]}({",".join(sorted(map(_sorted, tree[1])))})'


def test_shuffled_listops_are_the_same_trees():
  drawn = trees.draw(trees.Process(6, 6, 5, 200), 0, 2000)
  split = prepared.Split(drawn.tokens, drawn.offsets, drawn.values, None)
  config = small.config('transformer', 'listops')
  config.seq_len, config.train.augment = 0, True
  objective = classification.Objective(config, tasks.get('listops'), 256)
  indices = np.arange(200)
  before = _tokens(objective, split, indices, step=-1)
  after = _tokens(objective, split, indices)
  for old, new in zip(before, after, strict=True):
    old, new = old[old > 0], new[new > 0]
    assert len(old) == len(new)
    assert _sorted(_parsed(old)) == _sorted(_parsed(new))
  assert (before != after).any(1).mean() > 0.8


def test_all_orders_of_arguments_are_as_frequent():
  # [MIN 1 [MAX 2 3 ] 4 ], two levels with 6 * 2 orders.
  ids = np.array(list(listops.encode('[MIN 1 [MAX 2 3 ] 4 ]')), np.int16) + 1
  made = augment.shuffled(np.tile(ids, (6000, 1)), range(6000), 0, 0)
  _, counts = np.unique(made, axis=0, return_counts=True)
  assert len(counts) == 12
  assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize('text', ['[MIN 1 [MAX 2 3 ]', '1 2 ] [MIN 3 4 ]'])
def test_an_expression_that_is_cut_stays(text):
  ids = np.array([list(listops.encode(text))], np.int16) + 1
  for step in range(5):
    np.testing.assert_array_equal(augment.shuffled(ids, [0], 0, step), ids)


@pytest.mark.parametrize('task', ['text', 'retrieval'])
def test_windows_begin_anywhere_in_a_document(task):
  # Document k has the codes 100 k to 100 k + length - 1.
  lengths = [5, 6, 9, 40]
  tokens = np.concatenate([
      50 * k + np.arange(n) for k, n in enumerate(lengths)]).astype(np.uint8)
  pairs = np.array([[0, 3], [2, 1]]) if task == 'retrieval' else None
  split = prepared.Split(tokens, np.cumsum([0, *lengths]),
                         np.zeros(2 if pairs is not None else 4), pairs)
  config = small.config('transformer', task)
  config.seq_len, config.train.augment = 6, True
  objective = classification.Objective(config, tasks.get(task), 6)
  seen = [set() for _ in lengths]
  for step in range(300):
    made = _tokens(objective, split, np.arange(len(split.labels)), step=step)
    flat = made.reshape(-1, 6)
    order = range(4) if pairs is None else pairs.reshape(-1)
    for k, ids in zip(order, flat, strict=True):
      start = int(ids[0]) - 1 - 50 * k
      np.testing.assert_array_equal(
          ids[:lengths[k]], 50 * k + 1 + start + np.arange(min(6, lengths[k])))
      seen[k].add(start)
  assert [len(starts) for starts in seen] == [1, 1, 4, 35]
  np.testing.assert_array_equal(
      _tokens(objective, split, np.arange(2), step=-1),
      batches.gather(split, np.arange(2), 6)['tokens'])
