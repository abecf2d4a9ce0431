"""Writes files that data sets are made from, and reads back what was made."""

import contextlib
import functools
import http.server
import io
import pickle
import struct
import tarfile
import threading

import numpy as np
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

from lra.data_prep import __main__ as command


def write_archive(path, files, packed='gz'):
  """Writes an archive that, like the originals, has folders and other files."""
  with tarfile.open(path, f'w:{packed}') as archive:
    folder = tarfile.TarInfo('folder')
    folder.type = tarfile.DIRTYPE
    archive.addfile(folder)
    for name, data in {'folder/readme.html': b'', **files}.items():
      member = tarfile.TarInfo(name)
      member.size = len(data)
      archive.addfile(member, io.BytesIO(data))
  return path


def write_folder(path, files):
  for name, data in files.items():
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)
  return path


@contextlib.contextmanager
def served(folder):
  """Context of a web server for a folder; gives its address."""
  class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
      """Prints no log of requests."""

  with http.server.ThreadingHTTPServer(
      ('127.0.0.1', 0), functools.partial(Handler, directory=folder)) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.shutdown()


def refused(capsys, task, source, data):
  """Returns the one sentence with which the command refuses a source."""
  assert command.main([f'--task={task}', f'--source={source}',
                       f'--data_dir={data}']) == 2
  error = capsys.readouterr().err.rpartition('\r')[2].strip().splitlines()
  assert error[-1].startswith('error: ')
  assert not list(data.glob('*/*/1.0.0'))
  return error[-1]


def documents(split):
  return [split.document(i) for i in range(len(split))]


def labelled(*splits):
  """Returns the examples of splits, as a set of (document, label)."""
  return {(document, int(label)) for split in splits for document, label in
          zip(documents(split), split.labels, strict=True)}


def pairs(split, count=None):
  """Returns (first, second document) of pairs, each a list of numbers."""
  return [tuple(split.tokens[split.offsets[d]:split.offsets[d + 1]].tolist()
                for d in pair) for pair in split.pairs[:count]]


def encoded(pixels, kind):
  file = io.BytesIO()
  Image.fromarray(pixels).save(file, kind)
  return file.getvalue()


class Python2Pickler(pickle._Pickler):
  """Writes text and bytes as one type, as Python 2 did for CIFAR-10's files."""
  dispatch = dict(pickle._Pickler.dispatch)

  def save_bytes(self, text):
    size = len(text)
    self.write(b'U' + bytes([size]) + text if size < 256 else
               b'T' + struct.pack('<i', size) + text)

  dispatch[bytes] = save_bytes
  dispatch[str] = lambda self, text: self.save_bytes(text.encode())


def batch_of(images, **labels):
  """Returns the bytes of a CIFAR batch file in the official format for Python.

  Args:
    images: uint8 [N, 32, 32, 3].
    labels: key -> the labels there, [N].
  """
  planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(
      len(images), -1)
  file = io.BytesIO()
  Python2Pickler(file, 2).dump(
      {'batch_label': 'b', 'data': planes,
       **{key: of.tolist() for key, of in labels.items()}})
  return file.getvalue().replace(b'numpy._core.', b'numpy.core.')


def record_of(pixels, label):
  example = tf_example_pb2.Example()
  feature = example.features.feature
  feature['image'].bytes_list.value.append(encoded(pixels, 'PNG'))
  feature['label'].int64_list.value.append(int(label))
  return example.SerializeToString()


def tfrecord_of(records):
  return b''.join(struct.pack('<Q', len(data)) + b'crc.' + data + b'crc.'
                  for data in records)
