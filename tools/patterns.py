"""Draws the attention pattern of a model, with its share of all pairs.

  python -m tools.patterns --model=bigbird --length=1024 --out=bigbird.png
"""

import argparse
import ast
import sys

import numpy as np

from lra import models
from lra.core.errors import UserError
from lra.nn.patterns import KINDS, Pattern

_PALETTE = ('white', 'tab:blue', 'tab:orange', 'tab:purple', 'tab:green')


def model_patterns(name: str, length: int, fields: dict
                   ) -> tuple[Pattern, ...]:
  """Returns the patterns of a model's groups of heads.

  Args:
    name: name of the model.
    length: L.
    fields: fields of its Mixer which differ from the defaults.

  Raises:
    UserError: the model or field is unknown, or it has no fixed pattern.
  """
  mixer = models.mixer(name)
  if not hasattr(mixer, 'patterns'):
    raise UserError(
        f'{name} has no fixed pattern to draw: choose a model whose Mixer has '
        'a method patterns, such as bigbird.')
  try:
    mixer = mixer(**fields)
  except TypeError as error:
    raise UserError(f'--set does not fit {name}: {error}.') from error
  return mixer.patterns(length)


def draw(patterns: tuple[Pattern, ...], length: int, title: str,
         path: str) -> None:
  """Writes a PNG with one panel per pattern: rows queries, columns keys."""
  from matplotlib import colors, figure, patches

  fig = figure.Figure(figsize=(6 * len(patterns), 7), layout='constrained')
  fig.suptitle(title)
  present = set()
  for n, (axes, pattern) in enumerate(zip(
      fig.subplots(1, len(patterns), squeeze=False)[0], patterns, strict=True)):
    kinds = pattern.kinds(length)
    axes.imshow(kinds, cmap=colors.ListedColormap(_PALETTE), vmin=0,
                vmax=len(_PALETTE) - 1, interpolation='nearest')
    group = f'heads {n + 1}/{len(patterns)}: ' if len(patterns) > 1 else ''
    axes.set(xlabel='key', ylabel='query',
             title=f'{group}{np.mean(kinds > 0):.1%} of all pairs')
    present |= set(np.unique(kinds)) - {0}
  fig.legend(handles=[patches.Patch(color=_PALETTE[kind], label=KINDS[kind])
                      for kind in sorted(present)],
             loc='outside lower center', ncols=len(present))
  fig.savefig(path, dpi=min(max(100, length // 4), 400))


def main(argv: list[str]) -> None:
  """Draws the attention pattern of a model."""
  parser = argparse.ArgumentParser(
      prog='python -m tools.patterns', description=main.__doc__)
  parser.add_argument('--model', required=True)
  parser.add_argument('--length', type=int, default=1024)
  parser.add_argument('--out', help='default: MODEL-LENGTH.png')
  parser.add_argument('--set', action='append', default=[],
                      metavar='FIELD=VALUE', help='a field of its Mixer')
  args = parser.parse_args(argv)
  if not 1 <= args.length <= 8192:
    raise UserError('--length must be between 1 and 8192.')
  fields = {}
  for text in args.set:
    field, _, value = text.partition('=')
    try:
      fields[field] = ast.literal_eval(value)
    except (SyntaxError, ValueError) as error:
      raise UserError(f'--set={text} is not FIELD=VALUE.') from error
  out = args.out or f'{args.model}-{args.length}.png'
  draw(model_patterns(args.model, args.length, fields), args.length,
       f'{args.model}, L = {args.length}', out)
  print(out)


if __name__ == '__main__':
  try:
    main(sys.argv[1:])
  except UserError as e:
    sys.exit(f'Error: {e}')
