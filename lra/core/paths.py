"""The folder of the program, in a checkout or installed, and files beside it.
"""

import importlib.util
import os
import pathlib
import re
import types

from lra.core.errors import UserError, meant

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Files of this package: baselines, published results, counts, speeds.
PACKAGE = ROOT / 'lra'
PACKAGED = PACKAGE / 'results'
# A URL, even after pathlib has turned its // into /.
_URL = re.compile(
    r'[a-z][a-z0-9+.-]*://|'
    r'(gs|s3|hdfs|https?|ftp|file|abfss?|az|hf):/', re.IGNORECASE)

_NEVER = re.compile('[\0\ud800-\udfff]')  # in no path of UTF-8


def installed() -> bool:
  """Returns whether pip has installed this package; a checkout is left alone.
  """
  return any(ROOT.glob('lra-*.dist-info'))


def program() -> tuple[str, ...]:
  return ('lra',) if installed() else ('python', 'run_lra.py')


def config_said(model: str) -> str:
  return model if installed() else f'configs/{model}.py'


def extra(name: str) -> str:
  return "pip install " + (
      f"'lra[{name}]'" if installed() else f"-e '.[{name}]'")


def need(library: str, what: str, extra_name: str = 'hub') -> types.ModuleType:
  """Imports a library of an extra ('' if none has it) that `what` needs."""
  if importlib.util.find_spec(library.partition('.')[0]) is None:
    raise UserError(
        f'{what} needs {library}, which is not installed: '
        f'{extra(extra_name) if extra_name else "install it"}.')
  return importlib.import_module(library)


def results() -> pathlib.Path:
  """Returns the default folder of records; installed files are never changed.
  """
  return pathlib.Path('results') if installed() else PACKAGED


def page() -> pathlib.Path:
  return pathlib.Path('' if installed() else ROOT) / 'leaderboard.md'


def page_of(folder: pathlib.Path) -> pathlib.Path:
  ours = folder.resolve() == results().resolve()
  return page() if ours else folder / 'leaderboard.md'


def details_of(page_path: pathlib.Path) -> pathlib.Path:
  """Returns the folder of the task pages: beside the page, or in `docs/`."""
  folder, name = page_path.parent, page_path.stem
  if name == page_path.name:
    name += '_tasks'
  ours = not installed() and page_path.resolve() == page().resolve()
  return (folder / 'docs' if ours else folder) / name


def shown(path: str | os.PathLike) -> pathlib.Path:
  """Returns a path, from the current folder if it lies in there."""
  path, here = pathlib.Path(os.path.abspath(path)), pathlib.Path.cwd()
  return path.relative_to(here) if path.is_relative_to(here) else path


def found(path: str | os.PathLike) -> pathlib.Path:
  """Returns the path, or the file in this package if only that one exists."""
  path = pathlib.Path(path)
  ours = (PACKAGE / path).resolve()
  named = path.parts[:1] == ('configs',) and '..' not in path.parts
  there = os.path.exists(path) or not named or not os.path.isfile(ours)
  return path if there else ours


def config_parts(said: str) -> list[str]:
  """Splits --config=FILE:ARGUMENT, at the first colon after `.py`."""
  match = re.fullmatch(r'(.*?\.py)(?::(.*))?', said, re.DOTALL)
  if match:
    return [part for part in match.groups() if part is not None]
  return said.split(':', 1)


def config_file(name: str) -> pathlib.Path:
  """Returns the file of --config: a path, or `simpletron` for its config."""
  if name.isidentifier() and not os.path.isfile(name):
    config = found(f'configs/{name}.py')
    if os.path.isfile(config) or not os.path.exists(name):
      return config
  return found(name)


def local(path: str | os.PathLike, name: str = '') -> str | os.PathLike:
  """Returns a path, of the field or flag `name`; refuses a URL."""
  if not isinstance(path, str | os.PathLike) or _NEVER.search(os.fspath(path)):
    raise UserError(f'{name and f"{name}="}{path!r} is no path: give the name '
                    'of a file or a folder.')
  text = os.fspath(path)
  if _URL.match(text):
    raise UserError(
        f'{name and f"{name}="}{text} is a URL, but this program needs a path: '
        'mount the bucket (gcsfuse for gs://) or copy it here, and give that '
        'path.')
  return path


def near(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a path that is there and has a similar name; None without one."""
  found = pathlib.Path(path.anchor)
  for part in path.relative_to(path.anchor).parts:
    names = sorted(entry.name for entry in found.glob('*'))
    found /= part if part in names else meant(part, names) or part
  return found if found.exists() else None


def data_dir(given: str | os.PathLike | None = None) -> str | os.PathLike:
  """Returns the data folder: as given, or $TFDS_DATA_DIR, or TFDS's default."""
  if given:
    return local(given, 'data_dir')
  return local(os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets',
               'TFDS_DATA_DIR')
