"""Defines the colours and fonts of all figures."""

import contextlib
import io
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable

import matplotlib
import matplotlib.style
from matplotlib import figure
from matplotlib.backends import backend_svg

from lra.core.formats import plain

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9',
           '#000000')
DASHES = ('--', ':', '-.', (0, (6, 2, 1, 2, 1, 2)), (0, (1, 4)))
BASELINE = '#666666'
WIDTH = 5.6  # inches, so that letters can be read on a phone
_STYLE = {
    'font.size': 10, 'axes.grid': True, 'grid.color': '#e6e6e6',
    'axes.axisbelow': True, 'axes.spines.top': False,
    'axes.spines.right': False, 'legend.frameon': False,
    'text.parse_math': False,
}
_NO_DATES = {'png': {'Software': None},
             'svg': {'Date': None, 'Creator': None, 'Format': None}}
_ALONE = threading.RLock()


@contextlib.contextmanager
def style():
  """Sets our looks, in one thread at a time: they are of the process."""
  with (_ALONE, warnings.catch_warnings(), matplotlib.rc_context(),
        matplotlib.style.context(['default', _STYLE])):
    # Warnings about letters that a font lacks, and points that are all equal.
    warnings.simplefilter('ignore', UserWarning)
    matplotlib.rcParams['svg.hashsalt'] = 'lra'
    matplotlib.rcParams['svg.fonttype'] = 'none'
    yield


def saved(fig: figure.Figure, form: str) -> bytes:
  out = io.BytesIO()
  if form == 'svg':  # as `savefig` does, which lays text out once more
    backend_svg.FigureCanvasSVG(fig).print_svg(out, metadata=_NO_DATES[form])
  else:
    fig.savefig(out, format=form, metadata=_NO_DATES[form], dpi=110)
  return out.getvalue()


def draw_baselines(baselines: Iterable[tuple[str, float]],
                   line: Callable) -> None:
  """Draws (name, accuracy) as dashed lines by `axhline` or `axvline`."""
  for (name, value), dash in zip(baselines, itertools.cycle(DASHES),
                                 strict=False):
    line(100 * value, linestyle=dash, color=BASELINE, linewidth=1.2,
         label=f'baseline: {plain(name, 60)} {100 * value:.2f}')


def legend(fig: figure.Figure, columns: int) -> None:
  """Puts a legend below a figure, in `columns` or as many as have room."""
  size = _STYLE['font.size']
  while True:
    made = fig.legend(loc='outside lower center', ncols=columns, fontsize=size)
    wide = made.get_window_extent().width / fig.bbox.width
    if wide <= 1:
      return
    made.remove()
    if columns > 1:
      columns -= 1
    else:
      size *= 0.98 / wide
