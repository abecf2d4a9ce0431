"""Where the program lies, in a checkout or installed, and what is beside it."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def installed() -> bool:
  """Whether pip has put this package here; a checkout is not touched by it."""
  return any(ROOT.glob('lra-*.dist-info'))


def program() -> tuple[str, ...]:
  """The words that start the program."""
  return ('lra',) if installed() else ('python', 'run_lra.py')


def config_said(model: str) -> str:
  """What --config says of a model's file, see `config_file`."""
  return model if installed() else f'configs/{model}.py'


def extra(name: str) -> str:
  """The command that installs an optional part of this package."""
  return "pip install " + (
      f"'lra[{name}]'" if installed() else f"-e '.[{name}]'")


def results() -> pathlib.Path:
  """Folder of records unless told otherwise: nothing installed is changed."""
  return pathlib.Path('results') if installed() else ROOT / 'lra' / 'results'


def page() -> pathlib.Path:
  """The leaderboard unless told otherwise."""
  return pathlib.Path('' if installed() else ROOT) / 'leaderboard.md'


def page_of(folder: pathlib.Path) -> pathlib.Path:
  """The leaderboard of a folder of records, unless told otherwise.

  In the folder, so that records of your own do not replace the page of others.
  """
  ours = folder.resolve() == results().resolve()
  return page() if ours else folder / 'leaderboard.md'


def details_of(page_path: pathlib.Path) -> pathlib.Path:
  """The folder of the pages of tasks: beside the page, named like it.

  In a checkout the page of its own records has it in `docs/`.
  """
  folder, name = page_path.parent, page_path.stem
  if name == page_path.name:
    name += '_tasks'
  ours = not installed() and page_path.resolve() == page().resolve()
  return (folder / 'docs' if ours else folder) / name


def found(path: str | os.PathLike) -> pathlib.Path:
  """A file as it is named, or else the one of `configs/` that comes with this.

  Args:
    path: a path from the current folder, such as `configs/sweeps/mini.txt`.
  """
  path = pathlib.Path(path)
  ours = ROOT / path
  named = path.parts[:1] == ('configs',) and '..' not in path.parts
  there = os.path.exists(path) or not named or not os.path.isfile(ours)
  return path if there else ours


def config_file(name: str) -> pathlib.Path:
  """The file that --config names: a path, or `simpletron` for its config."""
  if name.isidentifier() and not os.path.isfile(name):
    config = found(f'configs/{name}.py')
    if os.path.isfile(config) or not os.path.exists(name):
      return config
  return found(name)
