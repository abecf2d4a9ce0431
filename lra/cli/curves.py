"""Draws the validation accuracies of runs, one line for all seeds of a config.

RUN is a run directory, or a record, of which only the last accuracy is known.

  lra curves figure.png runs/listops_mini/simpletron/b2e07619-s0
  lra curves figure.svg runs/listops_mini/*/*
"""

from lra.cli import arguments


def add_arguments(parser):
  parser.add_argument('figure', metavar='FIGURE', help='the file to draw to, '
                      'such as figure.png', type=arguments.path)
  parser.add_argument('runs', metavar='RUN', nargs='+', type=arguments.path)


def main(args) -> int:
  from lra.run import curves
  curves.plot_runs(args.runs, str(args.figure))
  print(f'wrote {args.figure}')
  return 0
