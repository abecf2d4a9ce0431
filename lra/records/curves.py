"""Draws `curves.png` of a run: loss, and any accuracy, against steps."""

import io
import json
import os
import pathlib
from collections.abc import Mapping

from matplotlib import figure

from lra import files
from lra.errors import UserError
from lra.formats import plain
from lra.records.style import BASELINE, COLOURS, DASHES, style

LEARNT = 0.95  # accuracy on validation
_LOOKS = {
    'train': {'color': COLOURS[0], 'linewidth': 1, 'alpha': 0.8},
    'val': {'color': COLOURS[1], 'marker': 'o', 'markersize': 4},
    'test': {'color': COLOURS[2], 'marker': '*', 'markersize': 12,
             'linestyle': 'none'},
}


def plot(metrics_jsonl_path: str | os.PathLike, out_png: str | os.PathLike,
         baselines: Mapping[str, float] | None = None) -> None:
  """Writes the curves of a run as one PNG, atomically.

  Args:
    metrics_jsonl_path: one object per log point with `step`, `split` (`train`,
      `val` or `test`), `loss` and, for a classifier, `accuracy` (a fraction).
      A last line cut short by a kill is left out. If a step was logged twice,
      the later point counts.
    out_png: the file to write.
    baselines: name -> accuracy (a fraction), drawn as dashed lines.

  Raises:
    UserError: the metrics cannot be read, or the figure cannot be written.
  """
  points = read(pathlib.Path(metrics_jsonl_path))
  with style():
    fig = figure.Figure(figsize=(9, 3.6), layout='constrained')
    scored = baselines or any('accuracy' in point for point in points.values())
    axes = fig.subplots(1, 2 if scored else 1, squeeze=False)[0]
    _draw(axes[0], points, 'loss', 1)
    if scored:
      _draw(axes[1], points, 'accuracy', 100)
      axes[1].set_ylabel('accuracy, %')
      _draw_baselines(axes[1], baselines or {})
    if axes[-1].get_legend_handles_labels()[1]:
      fig.legend(*axes[-1].get_legend_handles_labels(),
                 loc='outside lower center', ncols=4)
    out = io.BytesIO()
    fig.savefig(out, format='png', dpi=110, metadata={'Software': None})
  files.write_all({pathlib.Path(out_png): out.getvalue()})


def _draw_baselines(ax, baselines):
  for (name, value), dash in zip(sorted(baselines.items()), 9 * DASHES,
                                 strict=False):
    ax.axhline(100 * value, linestyle=dash, color=BASELINE, linewidth=1.2,
               label=f'baseline: {plain(name, 60)} {100 * value:.2f}')


def _draw(ax, points, field, scale):
  ax.set_xlabel('step')
  ax.set_ylabel(field)
  for split, look in _LOOKS.items():
    steps = sorted(step for kind, step in points if kind == split)
    values = [points[split, step].get(field) for step in steps]
    if steps:
      ax.plot(steps, [float('nan') if v is None else scale * v for v in values],
              label=split, **look)


def learnt_step(points: dict) -> int | None:
  """Returns the first step with validation accuracy of `LEARNT`, or None.

  Args:
    points: result of `read`.
  """
  return min((step for (split, step), point in points.items()
              if split == 'val' and (point.get('accuracy') or 0) >= LEARNT),
             default=None)


def read(path: pathlib.Path) -> dict:
  """Returns the log points of a run: {(split, step): object}.

  Raises:
    UserError: the file cannot be read, or a line before the last is invalid.
  """
  try:
    lines = files.read(path, files.MAX_LINES).decode(
        errors='replace').splitlines()
  except OSError as error:
    raise UserError(
        f'Cannot read {path} ({error.strerror}): give the metrics.jsonl of a '
        'run.') from error
  points = {}
  for number, line in enumerate(lines, 1):
    try:
      point = json.loads(line)
      points[point['split'], point['step']] = point
    except (ValueError, KeyError, TypeError) as error:
      if number == len(lines):
        break
      raise UserError(
          f'{path}, line {number} is not a log point ({error}): delete that '
          'line.') from error
  return points
