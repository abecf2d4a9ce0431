"""Draws the curves of a run, and the validation accuracy of several runs."""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from lra.core import files, foreign, style
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.core.terminal import say
from lra.schema import fields, identity, result

LEARNT = 0.95  # validation accuracy from which a task counts as learnt
_LONGEST = 90  # most letters of a line's name
_LARGEST = 1e100  # more than any number that a run logs
_LOOKS = {
    'train': {'color': style.COLOURS[0], 'linewidth': 1, 'alpha': 0.8},
    'val': {'color': style.COLOURS[1], 'marker': 'o', 'markersize': 4},
    'test': {'color': style.COLOURS[2], 'marker': '*', 'markersize': 12,
             'linestyle': 'none'},
}


def plot(metrics_jsonl_path: str | os.PathLike, out_png: str | os.PathLike,
         baselines: Mapping[str, float] | None = None) -> None:
  """Writes the curves of a run as one PNG; `baselines` are dashed lines."""
  points = read(pathlib.Path(metrics_jsonl_path))
  with style.style():
    fig = figure.Figure(figsize=(9, 3.6), layout='constrained')
    scored = baselines or any('accuracy' in point for point in points.values())
    axes = fig.subplots(1, 2 if scored else 1, squeeze=False)[0]
    _draw_split(axes[0], points, 'loss', 1)
    if scored:
      _draw_split(axes[1], points, 'accuracy', 100)
      axes[1].set_ylabel('accuracy, %')
      style.draw_baselines(sorted((baselines or {}).items()), axes[1].axhline)
    if axes[-1].get_legend_handles_labels()[1]:
      fig.legend(*axes[-1].get_legend_handles_labels(),
                 loc='outside lower center', ncols=4)
    data = style.saved(fig, 'png')
  files.write_all({pathlib.Path(out_png): data})


def _draw_split(ax, points, field, scale):
  ax.set_xlabel('step')
  ax.set_ylabel(field)
  for split, look in _LOOKS.items():
    steps = sorted(step for kind, step in points if kind == split)
    values = [points[split, step].get(field) for step in steps]
    if steps:
      ax.plot(steps, [float('nan') if v is None else scale * v for v in values],
              label=split, **look)


def learnt_step(points: dict) -> int | None:
  return min((step for (split, step), point in points.items()
              if split == 'val' and (point.get('accuracy') or 0) >= LEARNT),
             default=None)


def mixer_std(points: dict) -> list[dict]:
  return [{'step': step, 'blocks': [
      point[f'block_{i}'] for i in range(len(point)) if f'block_{i}' in point]}
      for (split, step), point in sorted(points.items(), key=lambda p: p[0][1])
      if split == 'mixer_std']


def read(path: pathlib.Path) -> dict:
  """Returns {(split, step): log point}, without a last line torn by a kill."""
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
      with foreign.reading(f'{path}, line {number}', 'delete that line',
                           'is not a log point'):
        point = json.loads(line)
        split, step = point['split'], point['step']
        if not isinstance(split, str) or type(step) is not int or step < 0:
          raise ValueError('its split or its step')
        if bad := [name for name, value in point.items() if not (
            name == 'split' or value is None or (
                type(value) in (int, float) and abs(value) <= _LARGEST))]:
          raise ValueError(bad[0])
        points[split, step] = point
    except UserError:
      if number < len(lines):
        raise
  return points


@dataclasses.dataclass(frozen=True)
class Curve:
  """The validation accuracy of a run directory, or of a record (`recorded`).

  `scores` maps steps to accuracies. A record has that of the tested parameters.
  """
  path: pathlib.Path
  config: dict
  scores: Mapping[int, float]
  baselines: Mapping[str, float]
  recorded: bool

  @property
  def name(self):
    return self.config['model'].get('name', '')


def _read_run(path):
  """Returns the `Curve` of a run, finished or not, or of a record."""
  if recorded := path.is_file():
    done = result.read(path)
    config, step = done.config, done.best_step
    scores = {done.steps if step is None else step: getattr(
        done.val, 'accuracy', None)}
  else:
    config = files.read_json(path / 'config.json')
    if not identity.is_config(config):
      raise UserError(
          f'{path} is no run, since it has no config.json of one: give '
          'directories like runs/<task>/<model>/<config hash>-s<seed>, or '
          'records.')
    done = result.read_if_there(path / 'result.json')
    scores = {step: point.get('accuracy') for (split, step), point in read(
        path / 'metrics.jsonl').items() if split == 'val'}
  scores = {step: score for step, score in scores.items() if score is not None}
  if not scores:
    raise UserError(
        f'{path} has no validation accuracy, or none yet: leave it out.')
  return Curve(path, config, scores, done.baselines if done else {}, recorded)


def plot_runs(paths: Sequence[pathlib.Path], out: str | os.PathLike) -> None:
  """Writes the validation accuracies of runs against steps, as .png or .svg.

  A line is the mean over the seeds of an experiment, at the steps that all of
  them have. A band reaches from the least to the largest. A record is a diamond
  at the step of its tested parameters.
  """
  out = pathlib.Path(out)
  form = out.suffix[1:].lower()
  if form not in ('png', 'svg'):
    raise UserError(f'{out} is neither .png nor .svg: choose one of them.')
  found, errors = [], []
  for path in paths:
    try:
      found.append(_read_run(path))
    except UserError as error:
      errors.append(error)
  if not found:
    raise errors[0]
  for error in errors:
    say(f'left out: {error}')
  lines = _lines(found)
  with style.style():
    data = style.saved(_draw(lines), form)
  files.write_all({out: data})


def _lines(runs):
  groups = []
  for group in _by(runs, lambda run: json.dumps(
      identity.experiment(run.config), sort_keys=True)):
    # Runs of one experiment may have equal seeds but other lengths or batch
    # sizes. Then each config gets a line.
    alone = len({run.config['seed'] for run in group}) == len(group)
    groups += [group] if alone else _by(
        group, lambda run: identity.config_hash(run.config))
  for group in groups:
    group.sort(key=lambda run: run.config['seed'])
    for other, run in itertools.pairwise(group):
      if run.config['seed'] == other.config['seed']:
        raise UserError(
            f'{other.path} and {run.path} have one config and one seed: leave '
            'one of them out.')
  first = [group[0] for group in groups]
  names = _named(first, identity.experiment)
  if len(set(names)) < len(names):
    names = _named(first, lambda c: identity.flatten(identity.identity(c)))
  return dict(zip(names, groups, strict=True))


def _by(runs, key):
  groups = collections.defaultdict(list)
  for run in runs:
    groups[key(run)].append(run)
  return list(groups.values())


def _named(runs, settings_of):
  """Names each run: its model, and the task and fields that differ."""
  names, several_tasks = [], len({run.config['task'] for run in runs}) > 1
  settings = {run.path: {name: json.dumps(value) for name, value in {
      **fields.added(run.name), **settings_of(run.config)}.items()}
      for run in runs}
  for run in runs:
    mine = settings[run.path]
    alike = [settings[other.path] for other in runs if other.name == run.name]
    names.append(', '.join([
        run.name, *[run.config['task']] * several_tasks,
        *(f'{name}={mine.get(name, "unset")}'
          for name in sorted(set().union(*alike)) if name != 'task'
          and len({other.get(name) for other in alike}) > 1)]))
  return names


def _draw(lines):
  fig = figure.Figure(figsize=(8, 4.2 + 0.2 * len(lines)), layout='constrained')
  ax, notes = fig.subplots(), {}
  for number, (name, group) in enumerate(lines.items()):
    turn, place = divmod(number, len(style.COLOURS))
    colour, dashes = style.COLOURS[place], ('-', *style.DASHES)
    label = plain(name, _LONGEST) + (
        f' ({len(group)} seeds)' if len(group) > 1 else '')
    records = [point for run in group if run.recorded
               for point in run.scores.items()]
    scores = [run.scores for run in group if not run.recorded]
    if scores:
      steps = sorted(set.intersection(*map(set, scores)))
      values = 100 * np.array([[each[step] for step in steps]
                               for each in scores])
      ax.plot(steps, values.mean(0), dashes[turn % len(dashes)], color=colour,
              marker='o', markersize=3, label=label)
    if len(scores) > 1:
      ax.fill_between(steps, values.min(0), values.max(0), color=colour,
                      alpha=0.2, linewidth=0)
      notes['means, bands from the least to the largest seed'] = True
    if records:
      steps, values = np.transpose(records)
      ax.plot(steps, 100 * values, 'D', color=colour, markersize=5,
              label='' if scores else label)
      notes['diamonds: records, at the step of the tested parameters'] = True
  runs = [run for group in lines.values() for run in group]
  tasks = sorted({run.config['task'] for run in runs})
  baselines = {name: value for run in runs
               for name, value in run.baselines.items()}
  if baselines and len(tasks) == 1:
    name = max(baselines, key=baselines.get)
    ax.axhline(100 * baselines[name], linestyle='--', color=style.BASELINE,
               linewidth=1.2, label=f'baseline on test: {plain(name, 60)} '
               f'{100 * baselines[name]:.2f}')
  ax.set_xlabel('step')
  ax.set_ylabel('validation accuracy, %')
  ax.set_title(': '.join(filter(None, [
      plain(', '.join(tasks), _LONGEST), '; '.join(notes)])))
  style.legend(fig, 2 if len(lines) > 4 else 1)
  return fig
