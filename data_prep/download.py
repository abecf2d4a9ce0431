"""Downloads a file from its own server."""

import logging
import pathlib
import urllib.request

from lra.errors import UserError

ANSWER_SECONDS = 20  # that the server has to answer


def fetch(builder, dl_manager, url: str, name: str, what: str) -> pathlib.Path:
  """Downloads the file at `url` and compares its checksum.

  Args:
    builder: builder of the data set.
    dl_manager: TFDS's, which has the checksum.
    url: address of the file.
    name: name of the file.
    what: its content (`CIFAR-10`), for the error.

  Raises:
    UserError: the download failed; names the offline way.
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
        f'({type(e).__name__}): set TFDS_DATA_DIR to a folder that has it, or '
        f'fetch {url} by other means and run python -m data_prep '
        f'--task={builder.task_name} --source=.../{name}.') from e
