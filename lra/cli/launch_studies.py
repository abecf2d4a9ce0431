"""Writes the page of studies: --studies, or the end of a study's sweep."""

import pathlib

from lra import paths
from lra.cli import launch, options
from lra.studies import page


def run() -> None:
  """Writes the page: in docs/ for the records of a checkout, else beside them.

  Raises:
    UserError: a study, or a measurement, is not valid.
  """
  results = pathlib.Path(options.RESULTS_DIR.value)
  ours = launch.place().usual and not paths.installed()
  path = (paths.ROOT / 'docs' if ours else results) / 'studies.md'
  page.write(path, results)
  print(f'wrote {path}')
