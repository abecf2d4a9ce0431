"""Results in words, for a terminal."""

from collections.abc import Sequence

from lra.board import statistics
from lra.board.rows import Row
from lra.core.formats import aligned, percent, ranges


def ranks(title: str, members: Sequence[tuple[str, Row]]) -> list[str]:
  """Returns lines that rank rows of one test split, as the page does.

  Args:
    title: what the first line begins with.
    members: rows with a name each; of rows of one model, names are shown.
  """
  members = sorted(members, key=lambda member: -member[1].mean)
  models = [row.model for _, row in members]
  names = models if len({*models}) == len(models) else [
      name for name, _ in members]
  samples = [row.sample for _, row in members]
  found, spread = statistics.rank(samples)
  pairs = len(members) * (len(members) - 1) // 2
  lines = [('  baseline', name, f'{percent(score)}%', '', '')
           for name, score in sorted(members[0][1].runs[0].baselines.items(),
                                     key=lambda baseline: -baseline[1])[:1]]

  def other(place, own):
    more = statistics.more_seeds(samples[place - 1], own, spread, pairs)
    return names[place - 1] + (f' ({more} more seeds may tell)' if more else '')
  for rank, name, own, (_, row) in zip(
      found, names, samples, members, strict=True):
    others = [other(place, own) for place in rank.like if place != rank.place]
    lines.append((
        f'  rank {ranges(range(rank.first, rank.last + 1))}', name,
        f'{percent(row.mean, row.digits)}%', ' to '.join(
            percent(end, row.digits) for end in row.interval[:2]),
        'no significant difference from ' + ', '.join(others)
        if others else 'differs significantly from all others'))
  return [f'{title}, compared by {"seeds" if spread else "test examples"} '
          '(95% intervals):', *aligned(lines, right=(2,))]
