"""Downloads models from Hugging Face's hub, and uploads them."""

import os
import pathlib
import re

from lra.core import paths
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.data import wordpiece

_LIBRARY = 'huggingface_hub'
_PREFIX = 'hf:'
_NAME = r'[\w-][\w.-]*/[\w-][\w.-]*'
_MOST = 200  # most letters of an error of the library


def place(name: str | os.PathLike) -> pathlib.Path:
  """Returns a folder by its path, or that of a model downloaded from the hub.

  The name is a path; or `hf:USER/NAME`, or `USER/NAME` if there is neither such
  a path nor a folder USER.
  """
  text = os.fspath(paths.local(name))
  named = text.startswith(_PREFIX)
  model = text.removeprefix(_PREFIX)
  if named and not re.fullmatch(_NAME, model):
    raise UserError(f'{text} is not the name of a model on the hub: write it '
                    'like hf:USER/NAME.')
  bare = re.fullmatch(_NAME, text) and not (
      os.path.lexists(text) or os.path.lexists(text.partition('/')[0]))
  return _downloaded(model, text) if named or bare else pathlib.Path(text)


def check_push(name: str) -> None:
  """Checks that a model can be uploaded, as far as that is known here."""
  if not re.fullmatch(_NAME, name):
    raise UserError(f'--push={name} is not the name of a model on the hub: '
                    'write it like USER/NAME.')
  if not paths.need(_LIBRARY, f'--push={name}').get_token():
    raise UserError(
        f'--push={name} needs a token of huggingface.co: run `hf auth login`, '
        'or set HF_TOKEN.')


def push(folder: pathlib.Path, name: str) -> str:
  """Uploads a folder, which stays, as the model USER/NAME; returns its address.
  """
  library = paths.need(_LIBRARY, f'--push={name}')
  try:
    library.create_repo(name, exist_ok=True)
    library.upload_folder(repo_id=name, folder_path=folder)
  except Exception as e:  # of the library, or of those that it uses
    raise UserError(
        f'{folder} is written, but was not uploaded ({_why(e)}): `hf upload '
        f'{name} {folder}` uploads it.') from e
  return f'{library.constants.ENDPOINT}/{name}'


def _downloaded(model, text):
  """Returns the folder of a model in the library's cache."""
  library = paths.need(
      _LIBRARY, f'{text} is no folder here, and a name of the hub')
  try:
    return pathlib.Path(library.snapshot_download(
        model, allow_patterns=['*.json', '*.safetensors', *wordpiece.NAMES]))
  except Exception as e:  # of the library, or of those that it uses
    raise UserError(
        f'{text} is no folder here, and no such model could be downloaded '
        f'from the hub ({_why(e)}): check the name, the network and the '
        'token.') from e


def _why(error):
  """Returns the first line of an error."""
  lines = str(error).strip().splitlines()
  return plain(f'{type(error).__name__}: {lines[0] if lines else ""}', _MOST)
