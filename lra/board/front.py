"""Names the marks of a figure that no other mark beats: its Pareto front.

Only these marks have names. Beyond each of them, in the direction of better
values, there is no other mark. So a name there hides no mark, and names only
have to keep clear of each other.
"""

from collections.abc import Sequence

from matplotlib import axes

from lra.core.style import BASELINE

_SIZE = 9  # of letters, in printer's points
_GAP = 2  # between a mark and its name, in printer's points
_FAR = 4  # a name that is further from its mark has a line to it


def of(points: Sequence[tuple[float, float]], small: bool = False
       ) -> list[int]:
  """Returns the indices of the points that no other point beats, left first.

  A point beats another if its y is higher and its x is not worse, or its x is
  better and its y is not lower. Of equal points the first is returned.

  Args:
    points: x and y; a higher y is better.
    small: whether a lower x is better, not a higher one.
  """
  best, found = None, []
  for i in sorted(range(len(points)), key=lambda i: (
      points[i][0] if small else -points[i][0], -points[i][1])):
    if best is None or points[i][1] > best:
      best = points[i][1]
      found.append(i)
  return found if small else found[::-1]


def name(ax: axes.Axes, points: Sequence[tuple[float, float]],
         names: Sequence[str], radii: Sequence[float], small: bool = False
         ) -> list:
  """Writes the names of the front's marks and draws a line along them.

  Args:
    ax: the axes, whose limits must not change any more.
    points: the point of each mark, in the units of the axes.
    names: the name of each mark.
    radii: the radius of each mark, in printer's points.
    small: see `of`.

  Returns:
    The texts.
  """
  found = of(points, small)
  ax.plot(*zip(*(points[i] for i in found), strict=True), color=BASELINE,
          linewidth=0.8, zorder=0.9, drawstyle=(
              'steps-post' if small else 'steps-pre'))
  side = -1 if small else 1
  texts = [ax.annotate(
      names[i], points[i], (0, radii[i] + _GAP), textcoords='offset points',
      fontsize=_SIZE, ha='right' if small else 'left', va='bottom')
           for i in found]
  ax.figure.draw_without_rendering()
  scale = ax.figure.dpi / 72
  taken = []
  # The worst accuracy comes first, so a name only moves past lower ones.
  for text, i in sorted(zip(texts, found, strict=True),
                        key=lambda pair: points[pair[1]][1]):
    box, x = text.get_window_extent(), ax.transData.transform(points[i])[0]
    up = 0
    for left, right, low, high in sorted(taken, key=lambda other: other[2]):
      if (left < box.x1 and box.x0 < right and low < box.y1 + up
          and box.y0 + up < high):
        up = high - box.y0 + scale
    text.set_position((0, radii[i] + _GAP + up / scale))
    taken.append((box.x0, box.x1, box.y0 + up, box.y1 + up))
    if up > _FAR * scale:
      taken.append((x, x + side, box.y0, box.y0 + up))
      ax.annotate('', points[i], (0, radii[i] + _GAP + up / scale),
                  textcoords='offset points', arrowprops={
                      'arrowstyle': '-', 'lw': 0.6, 'color': BASELINE,
                      'shrinkA': 0, 'shrinkB': 0})
  return texts


def cross(ax: axes.Axes, x: float, y: float, name: str) -> None:
  """Draws lines through the mark of a reference, and writes its name on top.

  The name is on the left of its line: names of the front may begin there.
  """
  for line, place in ((ax.axvline, x), (ax.axhline, y)):
    line(place, color=BASELINE, linestyle=':', linewidth=1, zorder=0.8)
  ax.annotate(name, (x, 1), (-_GAP, 0), xycoords=('data', 'axes fraction'),
              textcoords='offset points', fontsize=_SIZE, ha='right',
              va='bottom')
