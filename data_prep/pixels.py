"""Baselines of image tasks: ridge regression, and distance of two discs."""

import math

import numpy as np
from scipy import ndimage

_SIDE = 32  # ridge regression shrinks larger images to this side
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
_AT_ONCE = 2000


def ridge(splits):
  """Returns right answers, bool [N], and a description: ridge regression."""
  train, val, test = (splits[s] for s in ('train', 'val', 'test'))
  classes = int(train.labels.max()) + 1
  gram, right = 0.0, 0.0
  for rows, labels in _blocks(train):
    gram = gram + rows.T @ rows
    right = right + rows.T @ np.eye(classes)[labels]
  mean_square = np.trace(gram) / len(gram)
  penalty, weights = max(
      ((p, np.linalg.solve(gram + p * mean_square * np.eye(len(gram)), right))
       for p in _PENALTIES), key=lambda found: _right(found[1], val).mean())
  seen = min(_SIDE, _side(train))
  return _right(weights, test), (
      f'ridge regression of the classes on the grey values of {seen} x {seen} '
      f'pixels; validation chooses the penalty, {penalty} of the mean square')


def _blocks(split):
  """Yields blocks (rows, labels); rows, [N, pixels + 1], end in 1 for bias."""
  for start in range(0, len(split), _AT_ONCE):
    images = images_of(split, start, start + _AT_ONCE).astype(np.float64) / 255
    by = max(1, images.shape[1] // _SIDE)
    n, side = len(images), images.shape[1] // by
    small = images.reshape(n, side, by, side, by).mean((2, 4)).reshape(n, -1)
    yield (np.concatenate([small, np.ones((n, 1))], 1),
           split.labels[start:start + _AT_ONCE])


def _right(weights, split):
  return np.concatenate([(rows @ weights).argmax(1) == labels
                         for rows, labels in _blocks(split)])


def images_of(split, start: int, stop: int) -> np.ndarray:
  """Returns square images `start` to `stop` - 1, uint8 [N, H, H]."""
  stop, side = min(stop, len(split)), _side(split)
  flat = split.tokens[split.offsets[start]:split.offsets[stop]]
  return flat.reshape(stop - start, side, side)


def _side(split):
  return math.isqrt(int(split.offsets[1] - split.offsets[0]))


def marker_distance(splits, radius: float):
  """Guesses from the distance of the discs whether they are on one curve.

  Train fixes the threshold of the distance, and the class beyond it. `radius`
  is the radius of a disc in pixels. The result is like that of `ridge`.
  """
  far, labels = _distances(splits['train'], radius), splits['train'].labels
  best = max((float(np.mean((far >= t) == (labels == sign))), t, sign)
              for t in np.unique(far) for sign in (0, 1))
  _, threshold, sign = best
  test = splits['test']
  guess = (_distances(test, radius) >= threshold) == sign
  return guess == test.labels, (
      'answers by whether the two brightest discs are at least '
      f'{threshold:.1f} pixels apart, a threshold fitted on train')


def _distances(split, radius):
  reach = math.ceil(radius)
  y, x = np.mgrid[-reach:reach + 1, -reach:reach + 1]
  disc = (y ** 2 + x ** 2 <= radius ** 2).astype(np.float32)
  found = []
  for start in range(0, len(split), _AT_ONCE):
    for image in images_of(split, start, start + _AT_ONCE):
      bright = ndimage.correlate(image.astype(np.float32), disc,
                                 mode='constant')
      a = np.unravel_index(bright.argmax(), bright.shape)
      bright[max(0, a[0] - 2 * reach):a[0] + 2 * reach + 1,
             max(0, a[1] - 2 * reach):a[1] + 2 * reach + 1] = -1
      b = np.unravel_index(bright.argmax(), bright.shape)
      found.append(math.dist(a, b))
  return np.array(found)
