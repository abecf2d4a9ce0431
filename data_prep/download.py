"""One file from its own server, or a sentence that says how to go without."""

import logging
import pathlib
import urllib.request

from lra.errors import UserError

ANSWER_SECONDS = 20  # that the server has to say that it is there


def fetch(builder, dl_manager, url: str, name: str, what: str) -> pathlib.Path:
  """The file at `url`, downloaded and its checksum compared.

  Args:
    builder: of the data set that it is for.
    dl_manager: TFDS's, which knows the checksum.
    url: where the file is.
    name: what the file is called.
    what: what it holds, a part of a sentence.

  Raises:
    UserError: it could not be had; names the offline way.
  """
  logging.getLogger('urllib3').setLevel(logging.ERROR)
  try:
    # Without a network, TFDS would try again for many minutes.
    request = urllib.request.Request(url, method='HEAD')
    urllib.request.urlopen(request, timeout=ANSWER_SECONDS).close()
    return pathlib.Path(dl_manager.download(url))
  except Exception as e:
    raise UserError(
        f'{builder.absent}, and {what} could not be downloaded '
        f'({type(e).__name__}): set TFDS_DATA_DIR to where it is prepared, or '
        f'fetch {url} by other means and run python -m data_prep '
        f'--task={builder.task_name} --source=.../{name}.') from e
