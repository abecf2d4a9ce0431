"""Writes files of CIFAR-10 and CIFAR-100, and archives and folders of files."""

import io
import pickle
import struct
import tarfile

import numpy as np
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2


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
  """Returns the bytes of a batch file in the official format for Python.

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


def encoded(pixels, kind):
  file = io.BytesIO()
  Image.fromarray(pixels).save(file, kind)
  return file.getvalue()


def record_of(pixels, label):
  example = tf_example_pb2.Example()
  feature = example.features.feature
  feature['image'].bytes_list.value.append(encoded(pixels, 'PNG'))
  feature['label'].int64_list.value.append(int(label))
  return example.SerializeToString()


def tfrecord_of(records):
  return b''.join(struct.pack('<Q', len(data)) + b'crc.' + data + b'crc.'
                  for data in records)


def write_archive(path, files):
  with tarfile.open(path, 'w:gz') as archive:
    for name, data in {'cifar/readme.html': b'', **files}.items():
      member = tarfile.TarInfo(name)
      member.size = len(data)
      archive.addfile(member, io.BytesIO(data))
  return path


def write_folder(path, files):
  for name, data in files.items():
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)
  return path
