"""Draws the figures of the laptop arena: abilities, cost, published scores."""

import functools
import textwrap
import types
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib import figure, patches

from lra.board import charts, suite
from lra.board.catalogue import FAMILIES
from lra.board.charts import Figure, drawing
from lra.board.foretelling import Validity
from lra.board.frame import Board
from lra.board.site import Content
from lra.core import style


def every(content: Content) -> list[Figure]:
  return [*arena(content.arena, content.boards),
          *foretelling(content.validity)]


def arena(found: Sequence[suite.Line], boards: Sequence[Board]
          ) -> list[Figure]:
  """Returns the figures of abilities and of cost; [] without a mechanism."""
  names, made = [task.name for task in suite.suite().tasks], []
  if found:
    made.append(Figure(
        'laptop.svg', 'how far each mechanism is between the baseline and the '
        'best on each ability; the table has the numbers', names,
        functools.partial(heat, found, {
            board.task.name: board.highest for board in boards})))
  for name, label, cost in (
      ('minutes', 'core-minutes of a run', lambda line: line.core_minutes),
      ('states', 'numbers that a layer keeps from token to token', lambda line:
       next((cell.state_size for cell in line.cells.values()), None))):
    points = [(cost(line), types.SimpleNamespace(
        accuracy=line.score(suite.AVERAGE), family=line.family,
        model=line.model, name=line.model))
              for line in found if line.average and cost(line)]
    if len(points) > 2:
      made.append(Figure(
          f'laptop_{name}.svg', f'average accuracy against {label}; the '
          'mechanisms that no cheaper one beats have names', names,
          functools.partial(
              charts.cloud, f'Laptop arena: average against {label}', points,
              label)))
  return made


@drawing
def heat(found: Sequence[suite.Line], baselines: Mapping[str, float | None]):
  """Draws a cell for each mechanism and ability, by family.

  Its colour is (accuracy - baseline) / (best - baseline). It is hatched if the
  accuracy is not significantly above the baseline.
  """
  order = sorted(found, key=lambda line: (
      [*FAMILIES, line.family].index(line.family),
      -(line.score(suite.AVERAGE) or 0)))
  asked = [task for task in suite.suite().tasks
           if any(task.name in line.cells for line in order)]
  fig = figure.Figure(figsize=(
      style.WIDTH * (0.5 + 0.12 * len(asked)), 1.2 + 0.2 * len(order)),
                      layout='constrained')
  ax, colours = fig.subplots(), matplotlib.colormaps['viridis']
  for x, task in enumerate(asked):
    least = baselines.get(task.name) or 0
    best = max((cell.accuracy for line in order for name, cell in (
        line.cells.items()) if name == task.name), default=1)
    for y, line in enumerate(order):
      cell = line.cells.get(task.name)
      if cell is None:
        continue
      share = min(max((cell.accuracy - least) / max(best - least, 1e-9), 0), 1)
      unsure = not suite.above_baseline(cell)
      ax.add_patch(patches.Rectangle(
          (x - 0.5, y - 0.5), 1, 1, hatch='///' * unsure, linewidth=1,
          facecolor='#f4f4f4' if unsure else colours(share),
          edgecolor='#d5d5d5' if unsure else 'white'))
      ax.text(x, y, f'{100 * cell.accuracy:.0f}', ha='center', va='center',
              fontsize=8, color='black' if unsure or share > 0.6 else 'white')
  ax.set(xlim=(-0.5, len(asked) - 0.5), ylim=(len(order) - 0.5, -0.5))
  ax.set_xticks(range(len(asked)), [
      '\n'.join(textwrap.wrap(task.ability, 12)) for task in asked], fontsize=9)
  ax.xaxis.tick_top()
  ax.set_yticks(range(len(order)), [
      f'{line.model} ({line.family})' for line in order], fontsize=9)
  ax.tick_params(length=0)
  ax.grid(visible=False)
  ax.spines[:].set_visible(False)
  ax.set_xlabel('accuracy in %; colour: from the baseline (dark) to the best '
                '(bright);\nhatched: not significantly above the baseline')
  return fig


def foretelling(found: Sequence[Validity]) -> list[Figure]:
  """Returns the figure of the arena's scores beside published ones, if any."""
  panels = [one for one in found if one.points]
  return [Figure(
      'laptop_published.svg', 'scores in the laptop arena against published '
      'scores of Long Range Arena', [task.name for task in suite.suite().tasks],
      functools.partial(scatter, panels))] if panels else []


@drawing
def scatter(panels: Sequence[Validity]):
  """Draws a panel for each column: a named mark for each mechanism.

  Mechanisms that the arena was designed on are hollow. Where marks are close to
  each other, only the highest has a name.
  """
  height = -(-len(panels) // 2)
  fig = figure.Figure(figsize=(1.6 * style.WIDTH, 3.4 * height),
                      layout='constrained')
  axes = fig.subplots(height, 2, squeeze=False)
  for ax, item in zip(axes.flat, panels, strict=False):
    (low, high), (left, right) = ((min(x), max(x)) for x in list(
        zip(*item.points, strict=True))[1:])
    named = []
    for model, here, there in sorted(item.points, key=lambda one: -one[1]):
      own = model in suite.suite().designed_on
      ax.plot(100 * there, 100 * here, 'o', color=style.COLOURS[0],
              fillstyle='none' if own else 'full')
      if all(abs(here - y) > (high - low) / 25 or
             abs(there - x) > (right - left) / 4 for y, x in named):
        named.append((here, there))
        ax.annotate(model, (100 * there, 100 * here), (4, 2), fontsize=7,
                    textcoords='offset points')
    ax.set(title=f'{item.ability}: {item.verdict}', ylabel='laptop arena, %',
           xlabel=f'published {item.title}, %')
    ax.margins(0.15)
  for ax in axes.flat[len(panels):]:
    ax.set_axis_off()
  fig.supxlabel('hollow: mechanisms that the arena was designed on',
                fontsize=9)
  return fig
