"""Draws the figures of studies as SVG."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure, ticker

from lra.board.rows import Row
from lra.core.formats import plain
from lra.core.style import BASELINE, COLOURS, WIDTH, legend, saved, style
from lra.schema.runs_file import Study

# (name of an arm, column) -> its recorded runs; None if there are none.
Cells = Mapping[tuple[str, str], Row | None]
_MARKS = 'osD^vPX*'
_SEED = dict(linestyle='none', marker='o', markersize=4,
             markerfacecolor='none', alpha=0.7)


def arms(study: Study, found: Cells) -> bytes:
  """Draws the accuracy of each arm with its seeds and 95% interval.

  There is a panel for each task, or lines over the values of the study's axis.
  """
  known = {key: row for key, row in found.items() if row and row.finished}
  columns, names = (list(dict.fromkeys(key[i] for key in (
      found if study.axis else known))) for i in (1, 0))
  with style():
    if study.axis:
      return _over_axis(study.axis, known, names, columns)
    return _panels(known, names, [
        c for c in dict.fromkeys(c for _, c in found) if c in columns])


def _panels(known, names, columns):
  colours = dict(zip(names, itertools.cycle(COLOURS), strict=False))
  arms_of = [[name for name in names if (name, column) in known]
             for column in columns]
  fig, axes = _stacked(1.0, [0.55 + 0.24 * len(some) for some in arms_of])
  for ax, column, some in zip(axes, columns, arms_of, strict=True):
    for y, name in enumerate(some):
      row, colour = known[name, column], colours[name]
      ax.errorbar(100 * row.mean, y, xerr=_error([row]), fmt='o',
                  markersize=6, capsize=3, color=colour)
      if len(row.accuracies) > 1:
        ax.plot([100 * x for x in row.accuracies], [y] * len(row.accuracies),
                color=colour, **_SEED)
    _draw_baseline(ax.axvline, known, column)
    ax.set_title(plain(column, 60), fontsize=10, loc='left')
    ax.set_yticks(range(len(some)), [plain(n, 40) for n in some], fontsize=9)
    ax.set_ylim(len(some) - 0.4, -0.6)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(6))
  axes[-1].set_xlabel('test accuracy, %')
  axes[0].plot([], [], color=BASELINE, linestyle='--', label='highest baseline')
  axes[0].plot([], [], color='#333333', label='a seed', **_SEED)
  axes[0].errorbar([], [], xerr=[], color='#333333', fmt='o', capsize=3,
                   label='mean, 95% interval')
  return _finished(fig, 3)


def _stacked(base, heights):
  """Returns a figure and its panels, one below the other."""
  fig = _figure(base + sum(heights))
  return fig, fig.subplots(len(heights), 1, squeeze=False,
                           height_ratios=heights)[:, 0]


def _figure(height):
  return figure.Figure(figsize=(WIDTH, height), layout='constrained')


def _finished(fig, columns):
  legend(fig, columns)
  return saved(fig, 'svg')


def _error(rows):
  """Returns the lengths below and above each mean, in percent, [2, N]."""
  return 100 * np.transpose([
      (row.mean - row.interval.low, row.interval.high - row.mean)
      for row in rows]).reshape(2, -1)


def _draw_baseline(line, known, column):
  for (_, other), row in known.items():
    if other == column and row.runs[0].baselines:
      line(100 * max(row.runs[0].baselines.values()),
           color=BASELINE, linestyle='--', linewidth=1.2)
      return


def _over_axis(axis, known, names, columns):
  fig = _figure(3.8)
  ax = fig.subplots()
  for i, name in enumerate(names):
    points = [(x, known[name, c]) for x, c in enumerate(columns)
              if (name, c) in known]
    rows = [row for _, row in points]
    # Arms stand side by side, so that their intervals can be read.
    ax.errorbar(
        [x + 0.06 * i - 0.1 for x, _ in points],
        [100 * row.mean for row in rows], yerr=_error(rows),
        marker=_MARKS[i % len(_MARKS)], markersize=5, capsize=3,
        color=COLOURS[i % len(COLOURS)], label=plain(name, 40))
  if columns:
    _draw_baseline(ax.axhline, known, columns[0])
  ax.plot([], [], color=BASELINE, linestyle='--', label='highest baseline')
  ax.set_xticks(range(len(columns)), columns)
  ax.set_xlabel(axis)
  ax.set_ylabel('test accuracy, %')
  return _finished(fig, 3)


def mixer_std(found: Cells) -> bytes | None:
  """Draws the standard deviation of each block's mixer output over training.

  One panel for each arm, of the column with most blocks that has records, and
  a line for each block. None if no record has these numbers.
  """
  deepest = {}
  for (name, _), row in found.items():
    run = next((run for run in row.runs if run.mixer_std), None) if row else (
        None)
    if run and (name not in deepest or _blocks(run) >= _blocks(deepest[name])):
      deepest[name] = run
  if not deepest:
    return None
  with style():
    rows = -(-len(deepest) // 2)
    fig = _figure(0.8 + 2.2 * rows)
    axes = fig.subplots(rows, 2, sharey=True, squeeze=False).ravel()
    for ax, (name, run) in zip(axes, deepest.items(), strict=False):
      for block in range(_blocks(run)):
        ax.plot([point.step for point in run.mixer_std],
                [point.blocks[block] for point in run.mixer_std],
                **_line(block))
      ended = '' if run.status == 'ok' else f', {run.status}'
      ax.set_title(plain(f'{name}{ended}', 40), fontsize=10, loc='left')
      ax.set_yscale('log')
      ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
      ax.yaxis.set_major_formatter(ticker.FormatStrFormatter('%g'))
      ax.yaxis.set_minor_formatter(ticker.NullFormatter())
      ax.set_xlabel('training step')
      ax.xaxis.set_major_locator(ticker.MaxNLocator(4))
    for ax in axes[len(deepest):]:
      ax.set_visible(False)
    for block in range(max(map(_blocks, deepest.values()))):
      axes[0].plot([], [], label=f'block {block}', **_line(block))
    for ax in axes[::2]:
      ax.set_ylabel('standard deviation')
    return _finished(fig, 4)


def _blocks(run):
  return len(run.mixer_std[0].blocks)


def _line(block):
  return {'color': COLOURS[block % len(COLOURS)],
          'linestyle': '-' if block < len(COLOURS) else '--'}


def runtime(found: Cells, rows: Sequence[Mapping]) -> bytes | None:
  """Draws accuracy against measured seconds, with a panel for each task.

  The measured rows have `arm`, `task` and `seconds per step`. None if no row
  has a cell with runs.
  """
  known = [(row, runs) for row in rows
           if (runs := found.get((row.get('arm'), row.get('task'))))
           and runs.finished]
  if not known:
    return None
  columns, names = (list(dict.fromkeys(row[field] for row, _ in known))
                    for field in ('task', 'arm'))
  with style():
    fig, axes = _stacked(0.9, [2.4] * len(columns))
    for ax, column in zip(axes, columns, strict=True):
      for row, runs in known:
        if row['task'] == column:
          i = names.index(row['arm'])
          ax.errorbar(
              1000 * row['seconds per step'], 100 * runs.mean,
              yerr=_error([runs]), color=COLOURS[i % len(COLOURS)],
              marker=_MARKS[i % len(_MARKS)], capsize=3, linestyle='none',
              label=plain(row['arm'], 40) if ax is axes[0] else None)
      ax.set_title(plain(column, 60), fontsize=10, loc='left')
      ax.set_ylabel('test accuracy, %')
      ax.set_xlim(left=0)
    axes[-1].set_xlabel('milliseconds per training step')
    return _finished(fig, 3)
